// sample_test.cc: windows on a variant (attn_variant_sample, attn_variant_picture), and how
// captures are found and refused.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "variant_handle.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace {

using random_expr::variant;

attn_window window(int64_t nq, int64_t nk) {
    attn_window w;
    memset(&w, 0, sizeof w);
    w.size = sizeof w;
    w.nq = nq;
    w.nk = nk;
    return w;
}

std::string picture(const variant &x, const attn_window &w) {
    const int64_t n = attn_variant_picture(x.v, &w, nullptr, 0);
    INFO(attn_error());
    REQUIRE(n > 0);
    std::string text((size_t)n, '?');
    REQUIRE(attn_variant_picture(x.v, &w, &text[0], text.size()) == n);
    REQUIRE(text.back() == 0);
    text.pop_back();
    return text;
}

// A host tensor with its own shape and strides.
struct tensor {
    attn_tensor t;
    std::vector<int64_t> shape, strides;
    tensor(void *data, int type, std::vector<int64_t> n, std::vector<int64_t> st = {})
        : shape(n), strides(st) {
        memset(&t, 0, sizeof t);
        t.data = data;
        t.ndim = (int32_t)shape.size();
        t.dtype.code = (uint8_t)(type & 255);
        t.dtype.bits = (uint8_t)(type >> 8);
        t.dtype.lanes = 1;
        t.shape = shape.data();
        t.strides = strides.empty() ? nullptr : strides.data();
    }
    tensor(const tensor &) = delete;
};

attn_capture capture(const char *name, const attn_tensor *value, double number = 0,
                     const attn_tensor *grad = nullptr) {
    attn_capture c;
    memset(&c, 0, sizeof c);
    c.name = name;
    c.value = value;
    c.number = number;
    c.grad = grad;
    return c;
}

// The status of binding, with what the sentence must name.
int bind(const char *text, const std::vector<attn_capture> &captures, bool planning = false,
         const attn_device *device = nullptr) {
    const variant x(text);
    std::vector<attn__bound> bound(ATTN__MAX_SYMBOLS);
    const int64_t n = (int64_t)captures.size();
    return attn__bind(device, x.v, captures.data(), n, planning, bound.data());
}

} // namespace

TEST_CASE("pictures") {
    const variant causal("k <= q");
    CHECK(picture(causal, window(3, 3)) == "#..\n##.\n###\n");
    CHECK(picture(causal, window(2, 4)) == "###.\n####\n");
    CHECK(picture(causal, window(3, 2)) == "..\n#.\n##\n"); // the first query stands before key 0
    attn_window w = window(2, 4);
    w.flags = ATTN_TOP_LEFT;
    CHECK(picture(causal, w) == "#...\n##..\n");
    w = window(300, 300);
    w.i = 200;
    w.k = 126;
    w.rows = 2;
    w.columns = 140; // more than a strip
    const std::string line = std::string(75, '#') + std::string(65, '.');
    CHECK(picture(causal, w) == line + "\n" + "#" + line.substr(0, 139) + "\n");
    const variant infinite("k == 1 ? s : s - 1e38 * 1e38 * float(k)");
    CHECK(picture(infinite, window(1, 3)) == "##.\n"); // -inf is masked, NaN is not
}

TEST_CASE("a picture that does not fit is cut, closed, and says what it needs") {
    const variant causal("k <= q");
    const attn_window w = window(3, 3);
    char text[8];
    memset(text, 'x', sizeof text);
    CHECK(attn_variant_picture(causal.v, &w, text, 6) == 13);
    CHECK(std::string(text) == "#..\n#");
    CHECK(text[6] == 'x');
    CHECK(attn_variant_picture(causal.v, &w, text, 1) == 13);
    CHECK(text[0] == 0);
}

TEST_CASE("samples: scores, masks, the score that masks by itself") {
    const variant x("k != 1 ? 2 * s + t[h][k] : -inf");
    float numbers[] = {1, 2, 3, 10, 20, 30};
    const tensor t(numbers, ATTN_F32, {2, 3});
    const attn_capture c = capture("t", &t.t);
    attn_window w = window(2, 3);
    w.captures = &c;
    w.n_captures = 1;
    w.h = 1;
    w.nh = 2;
    const float s[] = {0, 1, 2, -INFINITY, 4, 5};
    float scores[6];
    REQUIRE(attn_variant_sample(x.v, &w, s, scores) == ATTN_OK);
    const float want[] = {10, -INFINITY, 34, -INFINITY, -INFINITY, 40};
    for (int i = 0; i < 6; i++) {
        CHECK(scores[i] == want[i]);
    }
    REQUIRE(attn_variant_sample(x.v, &w, nullptr, scores) == ATTN_OK);
    CHECK(scores[5] == 30);
}

TEST_CASE("windows that make no sense are refused by name") {
    const variant causal("k <= q");
    float scores[16];
    const struct {
        const char *arg;
        int64_t attn_window::*field;
        int64_t value;
    } rows[] = {{"nq", &attn_window::nq, 0},
                {"nk", &attn_window::nk, -1},
                {"nk", &attn_window::nk, 1ll << 31},
                {"i", &attn_window::i, 4},
                {"k", &attn_window::k, -1},
                {"rows", &attn_window::rows, 5},
                {"columns", &attn_window::columns, 5},
                {"h", &attn_window::h, 1},
                {"b", &attn_window::b, 1},
                {"rows", &attn_window::rows, -2}};
    for (const auto &row : rows) {
        attn_window w = window(4, 4);
        w.*row.field = row.value;
        INFO(row.arg << " " << row.value);
        CHECK(attn_variant_sample(causal.v, &w, nullptr, scores) == ATTN_INVALID);
        CHECK(std::string(attn_error_arg()) == std::string("window.") + row.arg);
        CHECK(std::string(attn_error()).rfind(attn_error_arg(), 0) == 0);
    }
    attn_window w = window(4, 4);
    w.size = 0;
    CHECK(attn_variant_sample(causal.v, &w, nullptr, scores) < 0);
    w = window(4, 4);
    CHECK(attn_variant_sample(nullptr, &w, nullptr, scores) == ATTN_INVALID);
    CHECK(attn_variant_sample(causal.v, &w, nullptr, nullptr) == ATTN_INVALID);
    const variant wide("q * 65536 < k");
    w = window(100000, 100000);
    w.i = 99999;
    CHECK(attn_variant_sample(wide.v, &w, nullptr, scores) == ATTN_VARIANT);
}

TEST_CASE("captures: every symbol once, no other, of a fitting type and rank") {
    float f[8] = {0};
    int32_t n[8] = {0};
    uint8_t u[8] = {0};
    const tensor f1(f, ATTN_F32, {8}), f2(f, ATTN_F32, {2, 4}), n1(n, ATTN_I32, {8}),
        u1(u, ATTN_U8, {8}), one(f, ATTN_F32, {1}), one_n(n, ATTN_I32, {}), half(f, ATTN_BF16, {8}),
        none(nullptr, ATTN_F32, {8});
    const char *const t = "s + t[k]";
    CHECK(bind(t, {capture("t", &f1.t)}) == ATTN_OK);
    CHECK(bind(t, {capture("t", &half.t)}) == ATTN_OK);
    CHECK(bind(t, {}) == ATTN_CAPTURE);
    CHECK(std::string(attn_error_arg()) == "captures.t");
    CHECK(bind(t, {capture("t", &f1.t), capture("u", &f1.t)}) == ATTN_CAPTURE);
    CHECK(std::string(attn_error_arg()) == "captures.u");
    CHECK(bind(t, {capture("t", &f1.t), capture("t", &f1.t)}) == ATTN_CAPTURE);
    CHECK(bind(t, {capture("t", nullptr)}) == ATTN_CAPTURE);
    CHECK(bind(t, {capture(nullptr, &f1.t)}) == ATTN_CAPTURE);
    CHECK(bind(t, {capture("t", &n1.t)}) == ATTN_DTYPE);
    CHECK(bind(t, {capture("t", &f2.t)}) == ATTN_SHAPE);
    CHECK(bind(t, {capture("t", &none.t)}) == ATTN_INVALID);
    CHECK(bind(t, {capture("t", &none.t)}, true) == ATTN_OK); // a plan reads no data
    CHECK(bind("i32 t[1]; t[k] == 0", {capture("t", &n1.t)}) == ATTN_OK);
    CHECK(bind("i32 t[1]; t[k] == 0", {capture("t", &f1.t)}) == ATTN_DTYPE);
    CHECK(bind("bool t[1]; t[k]", {capture("t", &u1.t)}) == ATTN_OK);
    CHECK(bind("bool t[1]; t[k]", {capture("t", &n1.t)}) == ATTN_DTYPE);
    CHECK(bind("s * c", {capture("c", nullptr, 0.5)}) == ATTN_OK);
    CHECK(bind("s * c", {capture("c", &one.t)}) == ATTN_OK);
    CHECK(bind("s * c", {capture("c", &f1.t)}) == ATTN_SHAPE);
    CHECK(bind("i32 w; q - k < w", {capture("w", nullptr, 3)}) == ATTN_OK);
    CHECK(bind("i32 w; q - k < w", {capture("w", &one_n.t)}) == ATTN_OK);
    CHECK(bind("i32 w; q - k < w", {capture("w", nullptr, 0.5)}) == ATTN_CAPTURE);
    CHECK(bind("i32 w; q - k < w", {capture("w", nullptr, NAN)}) == ATTN_CAPTURE);
    CHECK(bind("i32 w; q - k < w", {capture("w", nullptr, 3e9)}) == ATTN_CAPTURE);
    CHECK(bind("s * c", {capture("c", nullptr, 1e300)}) == ATTN_CAPTURE);
    CHECK(bind("s * c", {capture("c", nullptr, -INFINITY)}) == ATTN_OK);
}

TEST_CASE("captures: gradients are f32, of the value's shape, each element its own") {
    float f[64] = {0}, g[64] = {0};
    int32_t n[8] = {0};
    const tensor value(f, ATTN_F32, {2, 4}), good(g, ATTN_F32, {2, 4}, {8, 2}),
        other(g, ATTN_F32, {4, 2}), half(g, ATTN_F16, {2, 4}), same(g, ATTN_F32, {2, 4}, {0, 1}),
        near(g, ATTN_F32, {2, 4}, {3, 1}), one(g, ATTN_F32, {1}), ids(n, ATTN_I32, {8});
    const char *const t = "s + t[h][k]";
    CHECK(bind(t, {capture("t", &value.t, 0, &good.t)}) == ATTN_OK);
    CHECK(bind(t, {capture("t", &value.t, 0, &other.t)}) == ATTN_SHAPE);
    CHECK(std::string(attn_error_arg()) == "captures.t.grad");
    CHECK(bind(t, {capture("t", &value.t, 0, &half.t)}) == ATTN_DTYPE);
    CHECK(bind(t, {capture("t", &value.t, 0, &same.t)}) == ATTN_LAYOUT);
    CHECK(bind(t, {capture("t", &value.t, 0, &near.t)}) == ATTN_LAYOUT);
    CHECK(bind("s * c", {capture("c", nullptr, 2, &one.t)}) == ATTN_OK);
    CHECK(bind("s * c", {capture("c", nullptr, 2, &good.t)}) == ATTN_SHAPE);
    CHECK(bind("i32 t[1]; t[k] == 0", {capture("t", &ids.t, 0, &one.t)}) == ATTN_DTYPE);
}

TEST_CASE("captures: a bounded parameter is clamped, as a load is") {
    const variant x("i32 w in 0..2; i32 t[1] in 0..2; k <= w && k <= t[q]");
    int32_t numbers[] = {7, 7, 7, 7};
    const tensor t(numbers, ATTN_I32, {4});
    const struct {
        double w;
        const char *picture;
    } rows[] = {{7, "###."}, {-7, "#..."}, {1, "##.."}};
    for (const auto &row : rows) {
        const attn_capture captures[] = {capture("w", nullptr, row.w), capture("t", &t.t)};
        attn_window w = window(4, 4);
        w.rows = 1;
        w.captures = captures;
        w.n_captures = 2;
        CHECK(picture(x, w) == std::string(row.picture) + "\n");
    }
}

TEST_CASE("captures: one on another device is told from the call's own") {
    float x = 0;
    tensor t(&x, ATTN_F32, {1});
    attn_device ref;
    memset(&ref, 0, sizeof ref);
    ref.kind = 1;
    strcpy(ref.name, "ref");
    t.t.device.device_type = decltype(t.t.device.device_type)(2);
    CHECK(bind("s + t[k]", {capture("t", &t.t)}, false, &ref) == ATTN_DEVICE);
    CHECK(std::string(attn_error()).find("ref is 1:0") != std::string::npos);
    CHECK(bind("s + t[k]", {capture("t", &t.t)}) == ATTN_DEVICE);
    CHECK(std::string(attn_error()).find("host memory is 1:0") != std::string::npos);
}
