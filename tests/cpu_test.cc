// cpu_test.cc: the CPU engine against the oracle on chosen cases, and the bits it promises.
//
// The conformance suite judges the engine by the tolerance rule on very many cases; here stand what
// it cannot see: the same bits for any number of threads, batch and neighbours, the tile tables one
// by one, no allocation in a run, many runs at once.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "count_malloc.h"
#include "host_call.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

extern "C" {
#include "cpu_tile.h"
}

namespace {

using namespace host;
using Results = std::vector<std::vector<double>>;

const float inf = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Cpu {
    attn_device *d = nullptr;
    explicit Cpu(int threads) {
        attn_device_options o{};
        o.size = sizeof o;
        o.threads = threads;
        REQUIRE(attn_device_open("cpu", &o, &d) == ATTN_OK);
    }
    ~Cpu() { attn_device_release(d); }
    Cpu(const Cpu &) = delete;
};

struct Plan {
    attn_plan *p = nullptr;
    attn_plan_info info{};
    Plan(attn_device *d, int direction, const attn_call &c, const attn_variant *v) {
        const int status = attn_plan_new(d, direction, &c, v, &p);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        info.size = sizeof info;
        REQUIRE(attn_plan_query(p, &info) == ATTN_OK);
    }
    ~Plan() { attn_plan_release(p); }
    Plan(const Plan &) = delete;
};

struct Workspace {
    attn_device *d;
    void *at = nullptr;
    Workspace(attn_device *device, uint64_t bytes) : d(device) { attn_buffer_new(d, bytes, &at); }
    ~Workspace() { attn_buffer_release(d, at); }
    Workspace(const Workspace &) = delete;
};

void check_run(attn_device *d, int direction, const attn_call &c, const attn_variant *v) {
    const int status = run(d, direction, c, v);
    INFO(attn_error());
    REQUIRE(status == ATTN_OK);
}

// A call with what a case adds to it.
struct Case : Call {
    std::vector<Owned> more;
    attn_blocks blocks{};

    Case() = default;
    Case(int64_t b, int64_t h, int64_t hk, int64_t nq, int64_t nk, int64_t d, int64_t dv) {
        B = b;
        H = h;
        HK = hk;
        NQ = nq;
        NK = nk;
        D = d;
        DV = dv;
    }
    Tensor *add(int t, std::vector<int64_t> shape, uint64_t seed) {
        more.push_back(make(t, std::move(shape)));
        more.back()->fill(seed);
        return more.back().get();
    }
    const attn_tensor *ints(std::vector<int64_t> shape, const std::vector<double> &values) {
        more.push_back(make(ATTN_I32, std::move(shape)));
        for (size_t i = 0; i < values.size(); i++) {
            more.back()->set(static_cast<int64_t>(i), values[i]);
        }
        return &more.back()->t;
    }
    // A captured tensor of noise, and its gradient.
    void read(const char *name, std::vector<int64_t> shape, uint64_t seed) {
        Tensor *const value = add(ATTN_F32, shape, seed);
        capture(name, value, add(ATTN_F32, shape, 0));
    }
};

// Everything that a direction writes.
Results results(const Case &c, int direction) {
    std::vector<const attn_tensor *> all{c.c.o, c.c.lse};
    if (direction == ATTN_BACKWARD) {
        all = {c.c.dq, c.c.dk, c.c.dv, c.c.dsink};
        for (const attn_capture &x : c.captures) {
            all.push_back(x.grad);
        }
    }
    Results out;
    for (const attn_tensor *t : all) {
        out.emplace_back();
        int64_t n = t ? 1 : 0;
        for (int i = 0; t && i < t->ndim; i++) {
            n *= t->shape[i];
        }
        for (int64_t e = 0; e < n; e++) {
            int64_t at = 0, left = e;
            for (int i = t->ndim - 1; i >= 0; i--) {
                at += left % t->shape[i] * t->strides[i];
                left /= t->shape[i];
            }
            const int type = attn__type_of(t);
            out.back().push_back(
                attn__get(static_cast<char *>(t->data) + at * attn__type_bytes(type), type));
        }
    }
    return out;
}

void require_same_bits(const Results &a, const Results &b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); i++) {
        INFO("result " << i);
        REQUIRE(a[i].size() == b[i].size());
        REQUIRE(
            (a[i].empty() || memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) == 0));
    }
}

// NaN and infinity at the same places, the rest within `tolerance` of the largest value.
void check_close(const Results &got, const Results &want, double tolerance) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); i++) {
        REQUIRE(got[i].size() == want[i].size());
        double most = 1e-3, worst = 0;
        size_t misplaced = 0;
        for (size_t e = 0; e < want[i].size(); e++) {
            const double a = got[i][e], b = want[i][e];
            if (std::isfinite(a) && std::isfinite(b)) {
                most = std::max(most, std::fabs(b));
                worst = std::max(worst, std::fabs(a - b));
            } else {
                misplaced += !(a == b || (std::isnan(a) && std::isnan(b)));
            }
        }
        INFO("result " << i << " of " << want.size() << ": worst " << worst << ", largest "
                       << most);
        CHECK(misplaced == 0);
        CHECK(worst <= tolerance * most);
    }
}

void compare(int direction, const Case &c, const char *variant, double tolerance) {
    INFO("direction " << direction << ", variant " << variant);
    const Variant v(variant);
    INFO(attn_error());
    REQUIRE(v.status == ATTN_OK);
    const Cpu cpu(2);
    const Device ref("ref");
    check_run(cpu.d, direction, c.c, v.v);
    const Results got = results(c, direction);
    check_run(ref.d, direction, c.c, v.v);
    check_close(got, results(c, direction), tolerance);
}

// Both directions on the CPU against the oracle; both backwards read the oracle's o and lse.
void compare(const Case &c, const char *variant) {
    compare(ATTN_FORWARD, c, variant, 2e-5);
    compare(ATTN_BACKWARD, c, variant, 2e-5);
}

} // namespace

// -- Against the oracle ---------------------------------------------------------------------------

TEST_CASE("cpu: lengths around the tiles") {
    for (const int64_t nq : {1, 2, 63, 64, 65, 127, 128, 129, 200, 300}) {
        for (const int64_t nk : {1, 64, 129, 257}) {
            CAPTURE(nq, nk);
            Case c(1, 2, 1, nq, nk, 20, 12);
            c.fill();
            compare(c, nq % 2 ? "true" : "k <= q");
        }
    }
}

TEST_CASE("cpu: head dimensions and groups") {
    for (const int64_t d : {1, 15, 16, 17, 64, 100, 512}) {
        for (const int64_t group : {1, 3}) {
            CAPTURE(d, group);
            Case c(2, 2 * group, 2, 70, 140, d, d > 20 ? 20 : 33);
            c.fill();
            c.add_sink();
            c.c.dlse = &c.dlse->t;
            compare(c, "k <= q");
        }
    }
}

TEST_CASE("cpu: variants with captured gradients") {
    Case c(2, 4, 2, 130, 150, 16, 16);
    c.fill();
    c.c.dlse = &c.dlse->t;
    SECTION("a slope for each head") {
        c.read("slopes", {4}, 20);
        compare(c, "k <= q ? s + slopes[h] * (k - q) / 64 : -inf");
    }
    SECTION("a bias of all four axes: in place") {
        c.read("bias", {2, 4, 130, 150}, 21);
        compare(c, "s + bias[b][h][i][k]");
    }
    SECTION("a bias that batch entries share: in place, entries in turn") {
        c.read("bias", {4, 130, 150}, 21);
        compare(c, "s + bias[h][i][k]");
    }
    SECTION("a bias that all share, by the query's position") {
        c.read("bias", {150, 150}, 21);
        compare(c, "s + bias[q][k]");
    }
    SECTION("a bias read twice, once transposed: not in place") {
        c.read("bias", {150, 150}, 21);
        compare(c, "s + bias[q][k] - 0.5 * bias[k][q]");
    }
    SECTION("a table by distance, whose end lies inside") {
        c.read("table", {4, 40}, 22);
        compare(c, "k <= q ? s * table[h][q - k] + s : -inf");
    }
    SECTION("a parameter") {
        Tensor *const grad = c.add(ATTN_F32, {1}, 0);
        c.capture("cap", nullptr, grad);
        c.captures.back().number = 1.5;
        compare(c, "cap * tanh(s / cap)");
    }
}

TEST_CASE("cpu: everything that changes scores and weights") {
    Case c(2, 4, 2, 100, 200, 24, 40);
    SECTION("dropout") {
        c.fill();
        c.add_sink();
        c.c.dropout = 0.3;
        c.c.seed = 99;
    }
    SECTION("used lengths, empty sequences, rows that see nothing") {
        c.B = 4;
        c.fill();
        c.add_sink();
        c.c.q_used = c.ints({4}, {100, 0, 65, 100});
        c.c.k_used = c.ints({4}, {200, 200, 10, 0});
    }
    SECTION("packed, with spare rows between") {
        c.B = 3;
        c.fill(true, true);
        c.c.q_offsets = c.ints({4}, {0, 90, 90, 280});
        c.c.k_offsets = c.ints({4}, {10, 310, 400, 590});
        c.c.q_used = c.ints({3}, {80, 0, 190});
    }
    SECTION("block lists whose blocks are not the tiles") {
        c.fill();
        c.blocks = {sizeof c.blocks,
                    0,
                    30,
                    50,
                    c.ints({2, 1, 4}, {2, 1, 3, 9, 1, 0, 2, 1}),
                    c.ints({1, 4, 4, 3}, {0, 1, 2, 3, 3, 3, 1, 0, 2, 9, -1, 1, 2, 2, 1,  0,
                                          1, 2, 3, 0, 1, 1, 2, 0, 2, 0, 1,  0, 3, 2, 1,  1,
                                          1, 3, 2, 1, 0, 1, 2, 3, 3, 3, 1,  0, 2, 9, -1, 1})};
        c.c.blocks = &c.blocks;
    }
    SECTION("a shard with origins and totals") {
        c.fill();
        c.c.i0 = 64;
        c.c.nq = 200;
        c.c.k0 = 32;
        c.c.nk = 300;
        c.c.h0 = 4;
        c.c.nh = 8;
        c.c.hk = 4;
        c.c.dropout = 0.2;
    }
    SECTION("top left, a negative scale and the scales of blocks") {
        c.fill();
        c.c.flags = ATTN_TOP_LEFT | ATTN_SCALE_GIVEN;
        c.c.scale = -1.25;
        c.c.q_scale = &c.add(ATTN_F32, {2, 4, 1}, 31)->t;
        c.c.k_scale = &c.add(ATTN_F32, {2, 2, 2}, 32)->t;
        c.c.v_scale = &c.add(ATTN_F32, {2, 4, 2}, 33)->t;
    }
    compare(c, "k <= q && q - k < 90 ? 2 * tanh(s / 2) : -inf");
}

TEST_CASE("cpu: large scores, and masks that no finite number stands for") {
    Case c(1, 1, 1, 4, 300, 8, 8);
    c.fill();
    c.c.flags = ATTN_SCALE_GIVEN;
    SECTION("all scores far below any sentinel") {
        c.q->fill_all(-20000);
        c.k->fill_all(1);
        c.c.scale = 1e4;
    }
    SECTION("far apart") {
        c.c.scale = 1e4;
    }
    compare(ATTN_FORWARD, c, "k % 3 == 1", 2e-3);
}

// What tile registers multiply: whole tiles of 64 rows and 128 keys, a rest beside them.
TEST_CASE("cpu: whole tiles, and values that are too large or small to be split") {
    const struct {
        char where;
        float value;
    } plants[] = {{'-', 0},   {'q', 1e19f},  {'q', inf},   {'k', -1e19f}, {'k', not_a_number},
                  {'v', inf}, {'v', 1e-30f}, {'q', 1e-30f}};
    for (const auto &plant : plants) {
        for (const int type : {ATTN_F32, ATTN_BF16, ATTN_F16}) {
            for (const char *variant : {"true", "k <= q", "k <= q && q - k < 40",
                                        "k % 7 != 3 ? s - 0.01 * abs(q - k) : -inf"}) {
                CAPTURE(plant.where, plant.value, type);
                Case c(1, 2, 1, 150, 300, 64, 48);
                c.type = c.real = type;
                c.fill();
                Tensor *const t = plant.where == 'q'   ? c.q.get()
                                  : plant.where == 'k' ? c.k.get()
                                                       : c.v.get();
                if (plant.where != '-') {
                    t->set(20 * 64 + 5, plant.value);
                    t->set(71 * 64 + 2, plant.value);
                }
                compare(ATTN_FORWARD, c, variant, type == ATTN_F32 ? 2e-5 : 2e-2);
            }
        }
    }
}

// -- Values that are not finite -------------------------------------------------------------------

TEST_CASE("cpu: what is not finite reaches exactly the rows that see it") {
    const struct {
        const char *where;
        float value;
    } plants[] = {{"q", not_a_number},  {"q", inf},          {"k", not_a_number}, {"k", inf},
                  {"k", -inf},          {"v", not_a_number}, {"v", inf},          {"v", -inf},
                  {"do", not_a_number}, {"do", inf}};
    for (const auto &plant : plants) {
        for (const char *variant : {"k <= q", "k <= q && k % 7 != 3", "k <= q ? 0.1 * k : -inf"}) {
            CAPTURE(plant.where, plant.value);
            Case c(1, 2, 1, 150, 150, 16, 16);
            c.fill();
            c.c.dropout = 0.25;
            Tensor *const t = plant.where[0] == 'q'   ? c.q.get()
                              : plant.where[0] == 'k' ? c.k.get()
                              : plant.where[0] == 'v' ? c.v.get()
                                                      : c.dout.get();
            t->set(80 * 16 + 5, plant.value);
            t->set(131 * 16 + 2, plant.value);
            compare(c, variant);
        }
    }
}

TEST_CASE("cpu: a masked value changes no bit") {
    const Variant v("k <= q && k != 70");
    const Cpu cpu(2);
    for (const bool in_k : {true, false}) {
        Case a(1, 2, 2, 150, 150, 16, 16), b(1, 2, 2, 150, 150, 16, 16);
        a.fill();
        b.fill();
        for (int64_t d = 0; d < 16; d++) {
            (in_k ? b.k : b.v)->set(70 * 16 + d, d % 2 ? not_a_number : inf);
        }
        for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
            check_run(cpu.d, direction, a.c, v.v);
            check_run(cpu.d, direction, b.c, v.v);
            require_same_bits(results(a, direction), results(b, direction));
        }
    }
}

// -- Bits -----------------------------------------------------------------------------------------

namespace {

const char *const full_variant =
    "k <= q && q - k < 150 ? s + table[h][min(q - k, 63)] + bias[h][i][k] : -inf";
struct FullCase : Case {
    FullCase() : Case(3, 4, 2, 200, 330, 32, 24) {
        fill();
        add_sink();
        read("table", {4, 64}, 40);
        read("bias", {4, 200, 330}, 41);
        c.dlse = &dlse->t;
        c.dropout = 0.1;
    }
};

// Elements [to, to + n) of one tensor and [from, from + n) of another that are not equal.
int64_t differing(const Tensor &a, int64_t to, const Tensor &b, int64_t from, int64_t n) {
    int64_t differ = 0;
    for (int64_t e = 0; e < n; e++) {
        differ += a.get(to + e) != b.get(from + e);
    }
    return differ;
}

void copy(Tensor &to, int64_t at, const Tensor &from, int64_t begin, int64_t n) {
    for (int64_t e = 0; e < n; e++) {
        to.set(at + e, from.get(begin + e));
    }
}

} // namespace

TEST_CASE("cpu: the same bits for any number of threads, every time") {
    const Variant v(full_variant);
    const FullCase c;
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        Results first;
        for (const int threads : {1, 2, 2, 3, 7}) {
            CAPTURE(threads);
            const Cpu cpu(threads);
            check_run(cpu.d, direction, c.c, v.v);
            if (first.empty()) {
                first = results(c, direction);
            }
            require_same_bits(first, results(c, direction));
        }
    }
}

TEST_CASE("cpu: a row's bits do not depend on its batch, nor on how many rows there are") {
    const int64_t N = 190, D = 16, entry = 5;
    const int type = GENERATE(ATTN_F32, ATTN_BF16);
    const int real = GENERATE(ATTN_F32, ATTN_BF16); // f32 shows more bits
    const Variant v(GENERATE("k <= q && q - k < 100 ? s + 0.01 * (k - q) : -inf",
                             "k <= q && q - k < 100", "k != 20 || q > 150"));
    const Cpu cpu(2);
    Case all(32, 2, 2, N, N, D, D);
    all.type = type;
    all.real = real;
    all.fill();
    all.c.flags = ATTN_SCALE_GIVEN | (type == ATTN_BF16 ? ATTN_BATCH_INVARIANT : 0);
    all.c.scale = 4; // probabilities of many sizes, whose sums are not exact
    check_run(cpu.d, ATTN_FORWARD, all.c, v.v);
    check_run(cpu.d, ATTN_BACKWARD, all.c, v.v);
    // One batch entry alone, with all its queries or the last ones: other tiles, other neighbours.
    for (const int64_t rows : {N, int64_t{1}, int64_t{100}}) {
        CAPTURE(rows);
        Case one(1, 2, 2, rows, N, D, D);
        one.type = type;
        one.real = real;
        one.fill();
        one.c.flags = all.c.flags;
        one.c.scale = all.c.scale;
        for (int64_t h = 0; h < 2; h++) {
            const int64_t head = (entry * 2 + h) * N * D, last = head + (N - rows) * D;
            copy(*one.k, h * N * D, *all.k, head, N * D);
            copy(*one.v, h * N * D, *all.v, head, N * D);
            copy(*one.q, h * rows * D, *all.q, last, rows * D);
            copy(*one.dout, h * rows * D, *all.dout, last, rows * D);
        }
        check_run(cpu.d, ATTN_FORWARD, one.c, v.v);
        check_run(cpu.d, ATTN_BACKWARD, one.c, v.v);
        for (int64_t h = 0; h < 2; h++) {
            const int64_t head = (entry * 2 + h) * N * D, last = head + (N - rows) * D;
            CHECK(differing(*one.o, h * rows * D, *all.o, last, rows * D) == 0);
            CHECK(differing(*one.lse, h * rows, *all.lse, last / D, rows) == 0);
            CHECK(differing(*one.dq, h * rows * D, *all.dq, last, rows * D) == 0);
            if (rows == N) {
                CHECK(differing(*one.dk, h * N * D, *all.dk, head, N * D) == 0);
                CHECK(differing(*one.dv, h * N * D, *all.dv, head, N * D) == 0);
            }
        }
    }
}

TEST_CASE("cpu: with the flag a row of a whole tile has the bits of a row alone") {
    const Variant v("k <= q");
    const Cpu cpu(1);
    Case all(1, 1, 1, 256, 256, 64, 64), one(1, 1, 1, 1, 256, 64, 64);
    all.type = one.type = GENERATE(ATTN_F32, ATTN_BF16);
    all.real = one.real = ATTN_F32;
    all.fill();
    one.fill();
    copy(*one.k, 0, *all.k, 0, 256 * 64);
    copy(*one.v, 0, *all.v, 0, 256 * 64);
    copy(*one.q, 0, *all.q, 255 * 64, 64);
    all.c.flags = one.c.flags = ATTN_BATCH_INVARIANT;
    check_run(cpu.d, ATTN_FORWARD, all.c, v.v);
    check_run(cpu.d, ATTN_FORWARD, one.c, v.v);
    CHECK(differing(*one.o, 0, *all.o, 255 * 64, 64) == 0);
}

TEST_CASE("cpu: sums over segments of keys are merged, whoever makes them") {
    const int64_t N = 5000, D = 16; // three segments
    const char *const variants[] = {"true", "k <= q && q - k < 700", "k < 9 || k > 4990",
                                    "k <= q && k % 3 != 1 ? s + 0.001 * (k - q) : -inf"};
    for (const char *text : variants) {
        const Variant v(text);
        for (const int planted : {0, 1}) {
            Case all(1, 6, 2, 70, N, D, 32);
            all.fill();
            all.add_sink();
            if (planted) {
                all.v->set(4000 * 32 + 3, inf);
                all.v->set(1 * 32 + 5, not_a_number);
                all.k->set(300 * D + 1, not_a_number); // masked by some, seen by others
            }
            compare(ATTN_FORWARD, all, text, 2e-5);
            for (const int64_t rows : {1, 3, 40}) {
                Results first;
                for (const int threads : {1, 2, 3, 7}) {
                    CAPTURE(text, planted, rows, threads);
                    Case last(1, 6, 2, rows, N, D, 32);
                    last.fill();
                    last.add_sink();
                    copy(*last.k, 0, *all.k, 0, 2 * N * D);
                    copy(*last.v, 0, *all.v, 0, 2 * N * 32);
                    for (int64_t h = 0; h < 6; h++) {
                        copy(*last.q, h * rows * D, *all.q, (h * 70 + 70 - rows) * D, rows * D);
                    }
                    const Cpu cpu(threads);
                    check_run(cpu.d, ATTN_FORWARD, all.c, v.v);
                    check_run(cpu.d, ATTN_FORWARD, last.c, v.v);
                    first = first.empty() ? results(last, ATTN_FORWARD) : first;
                    require_same_bits(first, results(last, ATTN_FORWARD));
                    for (int64_t h = 0; h < 6; h++) {
                        const int64_t from = h * 70 + 70 - rows;
                        int64_t differ = 0;
                        for (int64_t e = 0; e < rows * 32; e++) {
                            const double x = last.o->get(h * rows * 32 + e);
                            const double y = all.o->get(from * 32 + e);
                            differ += memcmp(&x, &y, sizeof x) != 0;
                        }
                        CHECK(differ == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("cpu: few rows, k and v of every type and layout") {
    for (const int type : {ATTN_F32, ATTN_BF16, ATTN_F16}) {
        for (const int64_t dv : {16, 20, 48}) {
            CAPTURE(type, dv);
            const double tolerance = type == ATTN_F32 ? 2e-5 : 1e-2;
            Case c(2, 8, 2, 2, 300, 24, dv);
            c.type = c.real = type;
            c.fill();
            compare(ATTN_FORWARD, c, "k <= q", tolerance);
            c.v->set(17, inf);
            c.v->set(299 * dv + 1, not_a_number);
            compare(ATTN_FORWARD, c, "k <= q && k != 299", tolerance);
        }
    }
}

TEST_CASE("cpu: ATTN_CPU chooses among the tables") {
    const char *const before = getenv("ATTN_CPU");
    const std::string kept = before ? before : "";
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const std::string name = attn__tile_ops_at(table)->name;
        setenv("ATTN_CPU", name.c_str(), 1);
        const Cpu cpu(1);
        Case c(1, 1, 1, 3, 5, 8, 8);
        c.fill();
        const Plan plan(cpu.d, ATTN_FORWARD, c.c, nullptr);
        CHECK(std::string(plan.info.kernel).rfind(name + " ", 0) == 0);
    }
    for (const char *name : {"avx", "sse9", "avx512bf16x"}) {
        setenv("ATTN_CPU", name, 1);
        attn_device *d = nullptr;
        CHECK(attn_device_open("cpu", nullptr, &d) == ATTN_DEVICE);
        CHECK(std::string(attn_error_arg()) == "ATTN_CPU");
        CHECK(std::string(attn_error()).find(name) != std::string::npos);
    }
    before ? setenv("ATTN_CPU", kept.c_str(), 1) : unsetenv("ATTN_CPU");
}

// -- Runs -----------------------------------------------------------------------------------------

TEST_CASE("cpu: a run allocates nothing once the threads are there") {
    const Variant v(full_variant);
    const FullCase c;
    c.q->set(7, not_a_number);
    c.v->set(9, inf);
    const Cpu cpu(2);
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        const Plan plan(cpu.d, direction, c.c, v.v);
        const Workspace workspace(cpu.d, plan.info.workspace);
        REQUIRE(attn_run(plan.p, &c.c, workspace.at, nullptr) == ATTN_OK);
        int status = -1;
        const auto run = [&] { status = attn_run(plan.p, &c.c, workspace.at, nullptr); };
        CHECK(allocations_of(run) == 0);
        CHECK(status == ATTN_OK);
    }
}

TEST_CASE("cpu: a run leaves the caller's subnormal numbers alone") {
    const Cpu cpu(1); // its work is the caller's
    const int type = GENERATE(ATTN_F32, ATTN_BF16);
    Case c(1, 1, 1, 64, 128, 32, 32);
    c.type = type;
    c.fill();
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        check_run(cpu.d, direction, c.c, nullptr);
        volatile float least = 1.5e-38f;
        CHECK(least * 0.5f > 0);
    }
}

TEST_CASE("cpu: runs of one plan from many threads at once") {
    const Variant v(full_variant);
    const Cpu cpu(2);
    const FullCase cases[4];
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        const Plan plan(cpu.d, direction, cases[0].c, v.v);
        std::vector<std::thread> threads;
        std::atomic<int> failed{0};
        for (const FullCase &c : cases) {
            threads.emplace_back([&] {
                const Workspace workspace(cpu.d, plan.info.workspace);
                for (int repeat = 0; repeat < 3; repeat++) {
                    failed += attn_run(plan.p, &c.c, workspace.at, nullptr) != ATTN_OK;
                }
            });
        }
        for (std::thread &t : threads) {
            t.join();
        }
        REQUIRE(failed == 0);
        for (const FullCase &c : cases) {
            require_same_bits(results(cases[0], direction), results(c, direction));
        }
    }
}

TEST_CASE("cpu: the workspace of a long sequence is small") {
    const uint64_t N = 131072, D = 64, one_dq = N * D * 4;
    int64_t rows[] = {1, 1, 131072, 64}, row[] = {1, 1, 131072};
    attn_tensor x{}, lse{};
    x.ndim = 4;
    x.dtype = {ATTN_F32 & 255, ATTN_F32 >> 8, 1};
    x.shape = rows;
    lse = x;
    lse.ndim = 3;
    lse.shape = row;
    attn_call c{};
    c.size = sizeof c;
    c.q = c.k = c.v = c.o = c.dout = c.dq = c.dk = c.dv = &x;
    c.lse = &lse;
    const Cpu cpu(2);
    const Variant v("k <= q");
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        const Plan plan(cpu.d, direction, c, v.v);
        CAPTURE(direction, plan.info.workspace);
        CHECK(plan.info.workspace <= (uint64_t{64} << 20) + 2 * one_dq);
    }
}
