// plan_test.cc: what plans and runs refuse, with which status and in which words; what they allow.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <list>
#include <thread>
#include <unistd.h>

#ifdef ATTN_TENSOR
#error "C++ has no compound literals, so there is no ATTN_TENSOR for it"
#endif

namespace {

using namespace host;

const char *const alibi = "k <= q ? s + slopes[h] * (k - q) : -inf";

// A call with everything that can go wrong in it, and a place for tensors that a test makes.
struct Full : Call {
    std::list<Owned> more;
    Owned q_used, k_used, q_scale, k_scale, v_scale, counts, indices;
    attn_blocks blocks{};

    Full() {
        fill();
        add_sink();
        slopes = make(ATTN_F32, {H});
        dslopes = make(ATTN_F32, {H});
        capture("slopes", slopes.get(), dslopes.get());
        q_used = make(ATTN_I32, {B});
        k_used = make(ATTN_I32, {B});
        q_used->fill_all(4);
        k_used->fill_all(6);
        q_scale = make(ATTN_F32, {1});
        k_scale = make(ATTN_F32, {B, HK});
        v_scale = make(ATTN_F32, {B, H, 1});
        counts = make(ATTN_I32, {B, 1, 2});
        indices = make(ATTN_I32, {1, H, 2, 3});
        blocks = {sizeof blocks, 0, 3, 4, &counts->t, &indices->t};
        c.dlse = &dlse->t;
        c.q_used = &q_used->t;
        c.k_used = &k_used->t;
        c.q_scale = &q_scale->t;
        c.k_scale = &k_scale->t;
        c.v_scale = &v_scale->t;
        c.blocks = &blocks;
    }
    const attn_tensor *other(int t, std::vector<int64_t> shape) {
        more.push_back(make(t, std::move(shape)));
        return &more.back()->t;
    }
    // A copy of a tensor of the call with one stride changed.
    const attn_tensor *strided(const Tensor &like, size_t axis, int64_t stride) {
        more.push_back(make(like.type(), like.shape));
        more.back()->strides[axis] = stride;
        return &more.back()->t;
    }
};

struct Refusal {
    const char *what;
    int status;
    const char *arg;
    std::function<void(Full &)> change;
};

const double nan_ = std::numeric_limits<double>::quiet_NaN();
const double inf_ = std::numeric_limits<double>::infinity();

#define CHANGE(...)                                                                                \
    [](Full &f) {                                                                                  \
        (void)f;                                                                                   \
        __VA_ARGS__;                                                                               \
    }
const Refusal refusals[] = {
    {"size 0", ATTN_INVALID, "attn_call", CHANGE(f.c.size = 0)},
    {"size too large", ATTN_INVALID, "attn_call", CHANGE(f.c.size = sizeof(attn_call) + 8)},
    {"size within a member", ATTN_INVALID, "attn_call", CHANGE(f.c.size = 5)},
    {"size of no release", ATTN_INVALID, "attn_call", CHANGE(f.c.size = sizeof(attn_call) - 8)},
    {"unknown flag", ATTN_INVALID, "flags", CHANGE(f.c.flags = 64)},
    {"alignment 12", ATTN_INVALID, "alignment", CHANGE(f.c.alignment = 12)},
    {"scale inf in f32", ATTN_INVALID, "scale",
     CHANGE(f.c.flags = ATTN_SCALE_GIVEN; f.c.scale = -1e39)},
    {"scale NaN", ATTN_INVALID, "scale", CHANGE(f.c.flags = ATTN_SCALE_GIVEN; f.c.scale = nan_)},
    {"scale inf", ATTN_INVALID, "scale", CHANGE(f.c.flags = ATTN_SCALE_GIVEN; f.c.scale = inf_)},
    {"scale without its flag", ATTN_INVALID, "scale", CHANGE(f.c.scale = 0.5)},
    {"dropout 1", ATTN_INVALID, "dropout", CHANGE(f.c.dropout = 1)},
    {"dropout < 0", ATTN_INVALID, "dropout", CHANGE(f.c.dropout = -0.25)},
    {"dropout NaN", ATTN_INVALID, "dropout", CHANGE(f.c.dropout = nan_)},
    {"no q", ATTN_INVALID, "q", CHANGE(f.c.q = nullptr)},
    {"no k", ATTN_INVALID, "k", CHANGE(f.c.k = nullptr)},
    {"no v", ATTN_INVALID, "v", CHANGE(f.c.v = nullptr)},
    {"q of rank 2", ATTN_SHAPE, "q", CHANGE(f.c.q = f.other(ATTN_F32, {5, 8}))},
    {"q packed without offsets", ATTN_INVALID, "q_offsets",
     CHANGE(f.c.q = f.other(ATTN_F32, {10, 4, 8}))},
    {"k packed without offsets", ATTN_INVALID, "k_offsets",
     CHANGE(f.c.k = f.other(ATTN_F32, {14, 2, 8}))},
    {"padded q with offsets", ATTN_SHAPE, "q", CHANGE(f.c.q_offsets = f.other(ATTN_I32, {3}))},
    {"padded k with offsets", ATTN_SHAPE, "k", CHANGE(f.c.k_offsets = f.other(ATTN_I32, {3}))},
    {"negative extent", ATTN_SHAPE, "q", CHANGE(f.q->shape[2] = -1)},
    {"huge extent", ATTN_SHAPE, "q", CHANGE(f.q->shape[2] = int64_t{1} << 31)},
    {"overflowing strides", ATTN_LAYOUT, "k", CHANGE(f.k->strides[0] = int64_t{1} << 62)},
    {"q i32", ATTN_DTYPE, "q", CHANGE(f.c.q = f.other(ATTN_I32, {2, 4, 5, 8}))},
    {"q of two lanes", ATTN_DTYPE, "q", CHANGE(f.q->t.dtype.lanes = 2)},
    {"q of no type", ATTN_DTYPE, "q", CHANGE(f.q->t.dtype.bits = 33)},
    {"k f16, q f32", ATTN_DTYPE, "k", CHANGE(f.c.k = f.other(ATTN_F16, {2, 2, 7, 8}))},
    {"v bf16, q f32", ATTN_DTYPE, "v", CHANGE(f.c.v = f.other(ATTN_BF16, {2, 2, 7, 6}))},
    {"D 0", ATTN_SHAPE, "q",
     CHANGE(f.c.q = f.other(ATTN_F32, {2, 4, 5, 0}); f.c.k = f.other(ATTN_F32, {2, 2, 7, 0}))},
    {"D 513", ATTN_SHAPE, "q",
     CHANGE(f.c.q = f.other(ATTN_F32, {2, 4, 5, 513}); f.c.k = f.other(ATTN_F32, {2, 2, 7, 513}))},
    {"DV 513", ATTN_SHAPE, "v", CHANGE(f.c.v = f.other(ATTN_F32, {2, 2, 7, 513}))},
    {"D differs", ATTN_SHAPE, "k", CHANGE(f.c.k = f.other(ATTN_F32, {2, 2, 7, 9}))},
    {"batch differs", ATTN_SHAPE, "k",
     CHANGE(f.c.k = f.other(ATTN_F32, {3, 2, 7, 8}); f.c.v = f.other(ATTN_F32, {3, 2, 7, 6}))},
    {"v has other rows", ATTN_SHAPE, "v", CHANGE(f.c.v = f.other(ATTN_F32, {2, 2, 6, 6}))},
    {"v has other heads", ATTN_SHAPE, "v", CHANGE(f.c.v = f.other(ATTN_F32, {2, 4, 7, 6}))},
    {"groups do not divide", ATTN_SHAPE, "k",
     CHANGE(f.c.k = f.other(ATTN_F32, {2, 3, 7, 8}); f.c.v = f.other(ATTN_F32, {2, 3, 7, 6}))},
    {"no heads", ATTN_SHAPE, "k",
     CHANGE(f.c.k = f.other(ATTN_F32, {2, 0, 7, 8}); f.c.v = f.other(ATTN_F32, {2, 0, 7, 6}))},
    {"last stride 2", ATTN_LAYOUT, "q", CHANGE(f.c.q = f.strided(*f.q, 3, 2))},
    {"last stride of lse", ATTN_LAYOUT, "lse", CHANGE(f.c.lse = f.strided(*f.lse, 2, 0))},
    {"longest for padded", ATTN_INVALID, "q_longest", CHANGE(f.c.q_longest = 5)},
    {"longest negative", ATTN_INVALID, "k_longest", CHANGE(f.c.k_longest = -1)},
    {"another device", ATTN_DEVICE, "v",
     CHANGE(f.v->t.device.device_type = decltype(f.v->t.device.device_type)(2))},
    {"another CPU", ATTN_DEVICE, "v",
     CHANGE(f.v->t.device = {decltype(f.v->t.device.device_type)(1), 3})},
    {"q_used f32", ATTN_DTYPE, "q_used", CHANGE(f.c.q_used = f.other(ATTN_F32, {2}))},
    {"q_used of 3", ATTN_SHAPE, "q_used", CHANGE(f.c.q_used = f.other(ATTN_I32, {3}))},
    {"k_used of rank 2", ATTN_SHAPE, "k_used", CHANGE(f.c.k_used = f.other(ATTN_I32, {2, 1}))},
    {"b0 without batch", ATTN_INVALID, "batch", CHANGE(f.c.b0 = 1)},
    {"b0 negative", ATTN_INVALID, "b0", CHANGE(f.c.b0 = -1; f.c.batch = 8)},
    {"batch negative", ATTN_INVALID, "batch", CHANGE(f.c.batch = -8)},
    {"heads past nh", ATTN_INVALID, "nh", CHANGE(f.c.h0 = 5; f.c.nh = 8)},
    {"heads past hk", ATTN_INVALID, "hk", CHANGE(f.c.hk = 1)},
    {"i0 past nq", ATTN_INVALID, "nq", CHANGE(f.c.i0 = 9; f.c.nq = 8)},
    {"keys past nk", ATTN_INVALID, "nk", CHANGE(f.c.k_used = nullptr; f.c.k0 = 2; f.c.nk = 8)},
    {"nk beyond i32", ATTN_INVALID, "nk", CHANGE(f.c.nk = int64_t{1} << 31)},
    {"dropout counter", ATTN_INVALID, "dropout",
     CHANGE(f.c.dropout = 0.5; f.c.b0 = 70000; f.c.batch = 80000; f.c.nh = 70000)},
    {"no o", ATTN_INVALID, "o", CHANGE(f.c.o = nullptr)},
    {"o of fp8", ATTN_DTYPE, "o", CHANGE(f.c.o = f.other(ATTN_E4M3FN, {2, 4, 5, 6}))},
    {"o has D", ATTN_SHAPE, "o", CHANGE(f.c.o = f.other(ATTN_F32, {2, 4, 5, 8}))},
    {"lse f16", ATTN_DTYPE, "lse", CHANGE(f.c.lse = f.other(ATTN_F16, {2, 4, 5}))},
    {"lse of rank 4", ATTN_SHAPE, "lse", CHANGE(f.c.lse = f.other(ATTN_F32, {2, 4, 5, 1}))},
    {"lse of HK heads", ATTN_SHAPE, "lse", CHANGE(f.c.lse = f.other(ATTN_F32, {2, 2, 5}))},
    {"sink f16", ATTN_DTYPE, "sink", CHANGE(f.c.sink = f.other(ATTN_F16, {4}))},
    {"sink of HK", ATTN_SHAPE, "sink", CHANGE(f.c.sink = f.other(ATTN_F32, {2}))},
    {"q_scale of two", ATTN_SHAPE, "q_scale", CHANGE(f.c.q_scale = f.other(ATTN_F32, {2}))},
    {"q_scale of rank 4", ATTN_SHAPE, "q_scale",
     CHANGE(f.c.q_scale = f.other(ATTN_F32, {2, 2, 1, 1}))},
    {"k_scale [B][H]", ATTN_SHAPE, "k_scale", CHANGE(f.c.k_scale = f.other(ATTN_F32, {2, 4}))},
    {"v_scale of 3 heads", ATTN_SHAPE, "v_scale",
     CHANGE(f.c.v_scale = f.other(ATTN_F32, {2, 3, 1}))},
    {"v_scale of 2 blocks", ATTN_SHAPE, "v_scale",
     CHANGE(f.c.v_scale = f.other(ATTN_F32, {2, 4, 2}))},
    {"v_scale f16", ATTN_DTYPE, "v_scale", CHANGE(f.c.v_scale = f.other(ATTN_F16, {1}))},
    {"blocks of size 0", ATTN_INVALID, "attn_blocks", CHANGE(f.blocks.size = 0)},
    {"blocks.reserved", ATTN_INVALID, "blocks.reserved", CHANGE(f.blocks.reserved = 7)},
    {"bm 0", ATTN_INVALID, "blocks.bm", CHANGE(f.blocks.bm = 0)},
    {"bn negative", ATTN_INVALID, "blocks.bn", CHANGE(f.blocks.bn = -4)},
    {"no counts", ATTN_INVALID, "blocks.counts", CHANGE(f.blocks.counts = nullptr)},
    {"no indices", ATTN_INVALID, "blocks.indices", CHANGE(f.blocks.indices = nullptr)},
    {"counts of 3 blocks", ATTN_SHAPE, "blocks.counts",
     CHANGE(f.blocks.counts = f.other(ATTN_I32, {2, 1, 3}))},
    {"indices of 3 heads", ATTN_SHAPE, "blocks.indices",
     CHANGE(f.blocks.indices = f.other(ATTN_I32, {1, 3, 2, 3}))},
    {"indices f32", ATTN_DTYPE, "blocks.indices",
     CHANGE(f.blocks.indices = f.other(ATTN_F32, {1, 4, 2, 3}))},
    {"capture missing", ATTN_CAPTURE, "captures.slopes", CHANGE(f.c.n_captures = 0)},
    {"capture unknown", ATTN_CAPTURE, "captures.other", CHANGE(f.captures[0].name = "other")},
    {"capture of rank 2", ATTN_SHAPE, "captures.slopes",
     CHANGE(f.captures[0].value = f.other(ATTN_F32, {4, 1}))},
};

const Refusal forward_refusals[] = {
    {"o is broadcast", ATTN_LAYOUT, "o", CHANGE(f.c.o = f.strided(*f.o, 1, 0))},
    {"rows of o overlap", ATTN_LAYOUT, "o", CHANGE(f.c.o = f.strided(*f.o, 2, 5))},
    {"lse is broadcast", ATTN_LAYOUT, "lse", CHANGE(f.c.lse = f.strided(*f.lse, 0, 0))},
};

const Refusal backward_refusals[] = {
    {"no lse", ATTN_INVALID, "lse", CHANGE(f.c.lse = nullptr)},
    {"no dout", ATTN_INVALID, "dout", CHANGE(f.c.dout = nullptr)},
    {"nothing wanted", ATTN_INVALID, "dq",
     CHANGE(f.c.dq = f.c.dk = f.c.dv = f.c.dsink = nullptr; f.captures[0].grad = nullptr)},
    {"dsink without sink", ATTN_INVALID, "sink", CHANGE(f.c.sink = nullptr)},
    {"dsink of HK", ATTN_SHAPE, "dsink", CHANGE(f.c.dsink = f.other(ATTN_F32, {2}))},
    {"dlse like o", ATTN_SHAPE, "dlse", CHANGE(f.c.dlse = f.other(ATTN_F32, {2, 4, 5, 6}))},
    {"dout like q", ATTN_SHAPE, "dout", CHANGE(f.c.dout = f.other(ATTN_F32, {2, 4, 5, 8}))},
    {"dq i32", ATTN_DTYPE, "dq", CHANGE(f.c.dq = f.other(ATTN_I32, {2, 4, 5, 8}))},
    {"dk of H heads", ATTN_SHAPE, "dk", CHANGE(f.c.dk = f.other(ATTN_F32, {2, 4, 7, 8}))},
    {"dv like dk", ATTN_SHAPE, "dv", CHANGE(f.c.dv = f.other(ATTN_F32, {2, 2, 7, 8}))},
    {"dk is broadcast", ATTN_LAYOUT, "dk", CHANGE(f.c.dk = f.strided(*f.dk, 0, 0))},
    {"grad of another shape", ATTN_SHAPE, "captures.slopes.grad",
     CHANGE(f.captures[0].grad = f.other(ATTN_F32, {5}))},
};

// The sentence names the argument by its last word: "slopes" of "captures.slopes".
bool named(const char *arg) {
    const char *const dot = std::strrchr(arg, '.');
    return std::strstr(attn_error(), dot ? dot + 1 : arg) != nullptr;
}

void refuse(const Device &device, int direction, const Variant &variant, const Refusal &r) {
    CAPTURE(direction, r.what);
    Full f;
    r.change(f);
    attn_plan *plan = nullptr;
    REQUIRE(attn_plan_new(device.d, direction, &f.c, variant.v, &plan) == r.status);
    REQUIRE(plan == nullptr);
    CAPTURE(attn_error());
    REQUIRE(std::string(attn_error_arg()) == r.arg);
    REQUIRE(named(r.arg));
    REQUIRE(std::strlen(attn_error()) > std::strlen(r.arg) + 5);
}

// A plan of `planned`, then a run of `f` with a workspace.
int run_with(const Device &device, int direction, const Full &planned, const Full &f,
             const Variant &variant) {
    attn_plan *plan = nullptr;
    REQUIRE(attn_plan_new(device.d, direction, &planned.c, variant.v, &plan) == ATTN_OK);
    attn_plan_info info{};
    info.size = sizeof info;
    REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
    void *workspace = nullptr;
    REQUIRE(attn_buffer_new(device.d, info.workspace, &workspace) == ATTN_OK);
    const int status = attn_run(plan, &f.c, workspace, nullptr);
    attn_buffer_release(device.d, workspace);
    attn_plan_release(plan);
    return status;
}

} // namespace

TEST_CASE("a call with everything in it is planned and run") {
    for (const char *name : {"ref", "cpu"}) {
        const Device device(name);
        const Variant variant(alibi);
        REQUIRE(device.status == ATTN_OK);
        const Full f;
        CAPTURE(name, attn_error());
        REQUIRE(run_with(device, ATTN_FORWARD, f, f, variant) == ATTN_OK);
        REQUIRE(run_with(device, ATTN_BACKWARD, f, f, variant) == ATTN_OK);
    }
}

TEST_CASE("every refusal has its status and names its argument") {
    const Device device("cpu");
    const Variant variant(alibi);
    for (const Refusal &r : refusals) {
        refuse(device, ATTN_FORWARD, variant, r);
        refuse(device, ATTN_BACKWARD, variant, r);
    }
    for (const Refusal &r : forward_refusals) {
        refuse(device, ATTN_FORWARD, variant, r);
    }
    for (const Refusal &r : backward_refusals) {
        refuse(device, ATTN_BACKWARD, variant, r);
    }
    refuse(device, 3, variant, {"direction", ATTN_INVALID, "direction", CHANGE()});
    Full f;
    attn_plan *plan = nullptr;
    REQUIRE(attn_plan_new(nullptr, ATTN_FORWARD, &f.c, variant.v, &plan) == ATTN_INVALID);
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, nullptr, variant.v, &plan) == ATTN_INVALID);
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &f.c, variant.v, nullptr) == ATTN_INVALID);
    const Variant overflow("s + float(q * k * 100000000)");
    f.c.n_captures = 0;
    f.c.captures = nullptr;
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &f.c, overflow.v, &plan) == ATTN_VARIANT);
}

TEST_CASE("a run may not bring an i32 parameter that overflows what the plan's did not") {
    const Variant variant("i32 w; k < q - w ? s : -inf");
    const Device device("cpu");
    Call call;
    call.fill();
    call.capture("w", nullptr, nullptr);
    attn_plan *plan = nullptr;
    attn_plan_info info{};
    info.size = sizeof info;
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &call.c, variant.v, &plan) == ATTN_OK);
    REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
    std::vector<char> workspace(info.workspace + 64);
    void *const at =
        reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    CHECK(attn_run(plan, &call.c, at, nullptr) == ATTN_OK);
    call.captures[0].number = INT32_MIN;
    CHECK(attn_run(plan, &call.c, at, nullptr) == ATTN_VARIANT);
    attn_plan_release(plan);
}

TEST_CASE("f64 is the oracle's alone") {
    const Variant variant("s");
    Call call;
    call.type = call.real = call.lse_type = ATTN_F64;
    call.fill();
    const Device ref("ref"), cpu("cpu");
    REQUIRE(run(ref.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
    REQUIRE(run(ref.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
    REQUIRE(run(cpu.d, ATTN_FORWARD, call.c, variant.v) == ATTN_DTYPE);
    REQUIRE(std::string(attn_error_arg()) == "q");
}

TEST_CASE("packed and padded sides combine, with used lengths too") {
    const Variant variant(alibi);
    for (const char *name : {"ref", "cpu"}) {
        const Device device(name);
        for (int sides = 0; sides < 4; sides++) {
            Call call;
            call.fill(sides & 1, sides & 2);
            const Owned slopes = make(ATTN_F32, {call.H}), used = make(ATTN_I32, {call.B});
            const Owned qo = make(ATTN_I32, {call.B + 1}), ko = make(ATTN_I32, {call.B + 1});
            call.capture("slopes", slopes.get(), nullptr);
            used->fill_all(3);
            for (int64_t b = 0; b <= call.B; b++) {
                qo->set(b, static_cast<double>(b * call.NQ));
                ko->set(b, static_cast<double>(b * call.NK));
            }
            call.c.q_offsets = sides & 1 ? &qo->t : nullptr;
            call.c.k_offsets = sides & 2 ? &ko->t : nullptr;
            call.c.q_used = call.c.k_used = &used->t;
            CAPTURE(name, sides);
            REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
            REQUIRE(run(device.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
            call.c.q_longest = sides & 1 ? 4 : 0;
            REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
        }
    }
}

TEST_CASE("a run within its plan") {
    const Device device("cpu");
    const Variant variant(alibi);
    const Full planned;
    SECTION("smaller sizes run") {
        Full f;
        f.B = 1;
        f.NQ = 3;
        f.NK = 4;
        f.fill();
        f.c.q_used = f.other(ATTN_I32, {1});
        f.c.k_used = f.other(ATTN_I32, {1});
        f.c.k_scale = f.other(ATTN_F32, {1, 2});
        f.c.v_scale = f.other(ATTN_F32, {1, 4, 1});
        f.blocks.counts = f.other(ATTN_I32, {1, 1, 1});
        f.blocks.indices = f.other(ATTN_I32, {1, 4, 1, 2});
        f.c.dlse = &f.dlse->t;
        const int status = run_with(device, ATTN_BACKWARD, planned, f, variant);
        CAPTURE(attn_error());
        REQUIRE(status == ATTN_OK);
    }
    const Refusal mismatches[] = {
        {"more rows", ATTN_MISMATCH, "q", CHANGE(f.NQ = 6; f.fill(); f.c.dlse = &f.dlse->t)},
        {"more keys", ATTN_MISMATCH, "k", CHANGE(f.NK = 8; f.fill(); f.c.dlse = &f.dlse->t)},
        {"other types", ATTN_MISMATCH, "q",
         CHANGE(f.type = ATTN_F16; f.fill(); f.c.dlse = &f.dlse->t)},
        {"no sink", ATTN_MISMATCH, "sink", CHANGE(f.c.sink = f.c.dsink = nullptr)},
        {"no dk", ATTN_MISMATCH, "dk", CHANGE(f.c.dk = nullptr)},
        {"no lengths", ATTN_MISMATCH, "q_used", CHANGE(f.c.q_used = nullptr)},
        {"dropout", ATTN_MISMATCH, "dropout", CHANGE(f.c.dropout = 0.5)},
        {"flags", ATTN_MISMATCH, "flags", CHANGE(f.c.flags = ATTN_TOP_LEFT)},
        {"no blocks", ATTN_MISMATCH, "blocks", CHANGE(f.c.blocks = nullptr)},
        {"bn", ATTN_MISMATCH, "blocks.bn", CHANGE(f.blocks.bn = 5)},
        {"a larger whole", ATTN_MISMATCH, "nh", CHANGE(f.c.nh = 5)},
        {"a longer whole", ATTN_MISMATCH, "nk", CHANGE(f.c.nk = 9)},
        {"a larger table", ATTN_MISMATCH, "captures.slopes",
         CHANGE(f.captures[0].value = f.other(ATTN_F32, {5});
                f.captures[0].grad = f.other(ATTN_F32, {5}))},
        {"a table of f16", ATTN_MISMATCH, "captures.slopes",
         CHANGE(f.captures[0].value = f.other(ATTN_F16, {4}))},
        {"no gradient of a table", ATTN_MISMATCH, "captures.slopes",
         CHANGE(f.captures[0].grad = nullptr)},
        {"no data", ATTN_INVALID, "q", CHANGE(f.q->t.data = nullptr)},
        {"no data to write", ATTN_INVALID, "dv", CHANGE(f.dv->t.data = nullptr)},
        {"misaligned", ATTN_LAYOUT, "k", CHANGE(f.k->t.byte_offset = 2)},
        {"below 16 bytes", ATTN_LAYOUT, "dv", CHANGE(f.dv->t.byte_offset = 8)},
        {"a smaller promise", ATTN_MISMATCH, "alignment", CHANGE(f.c.alignment = 8)},
        {"one scale for all heads", ATTN_MISMATCH, "k_scale",
         CHANGE(f.c.k_scale = f.other(ATTN_F32, {1}))},
        {"a scale per head, not per block", ATTN_MISMATCH, "v_scale",
         CHANGE(f.c.v_scale = f.other(ATTN_F32, {2, 2}))},
        {"blocks' scales per key head", ATTN_MISMATCH, "v_scale",
         CHANGE(f.c.v_scale = f.other(ATTN_F32, {2, 2, 1}))},
        {"a seed in memory", ATTN_MISMATCH, "seed_at",
         CHANGE(static const uint64_t seed = 1; f.c.seed_at = &seed)},
    };
    for (const Refusal &r : mismatches) {
        CAPTURE(r.what);
        Full f;
        r.change(f);
        REQUIRE(run_with(device, ATTN_BACKWARD, planned, f, variant) == r.status);
        CAPTURE(attn_error());
        REQUIRE(std::string(attn_error_arg()) == r.arg);
        REQUIRE(named(r.arg));
    }
    SECTION("workspace and stream") {
        attn_plan *plan = nullptr;
        REQUIRE(attn_plan_new(device.d, ATTN_BACKWARD, &planned.c, variant.v, &plan) == ATTN_OK);
        alignas(64) static char workspace[64];
        REQUIRE(attn_run(plan, &planned.c, nullptr, nullptr) == ATTN_INVALID);
        REQUIRE(std::string(attn_error_arg()) == "workspace");
        REQUIRE(attn_run(plan, &planned.c, workspace + 1, nullptr) == ATTN_LAYOUT);
        REQUIRE(attn_run(plan, &planned.c, workspace, workspace) == ATTN_INVALID);
        REQUIRE(std::string(attn_error_arg()) == "stream");
        REQUIRE(attn_run(nullptr, &planned.c, workspace, nullptr) == ATTN_INVALID);
        attn_plan_release(plan);
    }
    SECTION("a plan needs no data") {
        Full f;
        for (Tensor *t : {f.q.get(), f.k.get(), f.v.get(), f.o.get(), f.lse.get(), f.dout.get(),
                          f.dq.get(), f.sink.get(), f.slopes.get(), f.dslopes.get()}) {
            t->t.data = nullptr;
        }
        const Full g;
        REQUIRE(run_with(device, ATTN_BACKWARD, f, g, variant) == ATTN_OK);
    }
}

TEST_CASE("lengths in memory are clamped, or refused with ATTN_CHECK=1") {
    const Variant variant("s");
    for (const char *name : {"ref", "cpu"}) {
        const Device device(name);
        Call call;
        call.fill(true, true);
        const Owned qo = make(ATTN_I32, {3}), ko = make(ATTN_I32, {3}), used = make(ATTN_I32, {2});
        call.c.q_offsets = &qo->t;
        call.c.k_offsets = &ko->t;
        const struct {
            double q[3], k[3], used[2]; // used[0] = 99: no q_used
            const char *arg;
        } rows[] = {{{0, 5, 10}, {0, 7, 14}, {5, 0}, ""},
                    {{0, 5, 11}, {0, 7, 14}, {99}, "q_offsets"},
                    {{0, 5, 10}, {0, 7, 15}, {99}, "k_offsets"},
                    {{-3, 5, 10}, {0, 7, 14}, {99}, "q_offsets"},
                    {{0, 5, 10}, {0, 9, 2}, {5, 5}, "k_offsets"},
                    {{0, 2147483647, 10}, {-2147483648.0, 7, 14}, {0, 0}, "q_offsets"},
                    {{0, 5, 10}, {0, 7, 14}, {6, 5}, "q_used"},
                    {{0, 5, 10}, {0, 7, 14}, {5, 2147483647}, "q_used"},
                    {{0, 5, 10}, {0, 7, 14}, {-1, 5}, "q_used"}};
        for (const auto &row : rows) {
            for (int i = 0; i < 3; i++) {
                qo->set(i, row.q[i]);
                ko->set(i, row.k[i]);
                if (i < 2) {
                    used->set(i, row.used[i]);
                }
            }
            call.c.q_used = row.used[0] == 99 ? nullptr : &used->t;
            CAPTURE(name, row.arg);
            unsetenv("ATTN_CHECK");
            REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
            REQUIRE(run(device.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
            setenv("ATTN_CHECK", "1", 1);
            const int status = run(device.d, ATTN_FORWARD, call.c, variant.v);
            REQUIRE(status == (row.arg[0] ? ATTN_INVALID : ATTN_OK));
            if (row.arg[0]) {
                REQUIRE(std::string(attn_error_arg()) == row.arg);
            }
        }
        unsetenv("ATTN_CHECK");
    }
}

TEST_CASE("block lists and bounded tables in memory are clamped, or refused with ATTN_CHECK=1") {
    const Variant variant("i32 ids[2] in 2..9; k <= q + ids[b][k] ? s : -inf");
    const double low = -2147483648.0, high = 2147483647;
    const struct {
        double count, index, id; // of the last block of the last head; of the last key
        const char *arg;
    } rows[] = {{2, 1, 9, ""},
                {0, 99, 2, ""}, // an index that does not count
                {-1, 1, 9, "blocks.counts"},
                {4, 1, 9, "blocks.counts"},
                {high, 1, 9, "blocks.counts"},
                {2, 2, 9, "blocks.indices"},
                {2, -1, 9, "blocks.indices"},
                {2, low, 9, "blocks.indices"},
                {2, 1, 10, "captures.ids"},
                {2, 1, 1, "captures.ids"},
                {2, 1, low, "captures.ids"}};
    for (const char *name : {"ref", "cpu"}) {
        const Device device(name);
        Call call;
        call.fill();
        const Owned counts = make(ATTN_I32, {2, 1, 2}), indices = make(ATTN_I32, {1, 4, 2, 3});
        const Owned ids = make(ATTN_I32, {2, 7});
        attn_blocks blocks = {sizeof blocks, 0, 3, 4, &counts->t, &indices->t};
        call.c.blocks = &blocks;
        call.capture("ids", ids.get(), nullptr);
        for (const auto &row : rows) {
            counts->fill_all(1).set(3, row.count);
            indices->fill_all(0).set(22, row.index);
            ids->fill_all(3).set(13, row.id);
            CAPTURE(name, row.count, row.index, row.id);
            unsetenv("ATTN_CHECK");
            REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
            REQUIRE(run(device.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
            setenv("ATTN_CHECK", "1", 1);
            const int status = run(device.d, ATTN_BACKWARD, call.c, variant.v);
            unsetenv("ATTN_CHECK");
            REQUIRE(status == (row.arg[0] ? ATTN_INVALID : ATTN_OK));
            if (row.arg[0]) {
                REQUIRE(std::string(attn_error_arg()) == row.arg);
                REQUIRE(named(row.arg));
            }
        }
    }
}

TEST_CASE("plan_info counts blocks, pairs and bytes") {
    const Device device("cpu");
    const Variant causal("k <= q");
    Call call;
    call.B = 3;
    call.NQ = call.NK = 300;
    call.fill();
    attn_plan_info info{};
    info.size = sizeof info;
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        attn_plan *plan = nullptr;
        REQUIRE(attn_plan_new(device.d, direction, &call.c, causal.v, &plan) == ATTN_OK);
        REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
        REQUIRE(info.blocks == 9);
        REQUIRE(info.blocks_part == 3);
        REQUIRE(info.blocks_full == 3);
        const double n = 300, full = 128 * 128 + 2 * 44 * 128;
        const double pairs = 3 * 4 * (full + (2 * 128 * 128 + 44 * 44) / 2.0);
        REQUIRE(info.flops == 2 * pairs * (direction == ATTN_FORWARD ? 8 + 6 : 3 * 8 + 2 * 6));
        const double q = 4 * 8, k = 2 * 8, v = 2 * 6, o = 4 * 6, lse = 4;
        const double forward = q + k + v + o + lse, grads = o + q + k + v;
        REQUIRE(info.bytes == 4 * 3 * n * (forward + (direction == ATTN_FORWARD ? 0 : grads)));
        attn_plan_release(plan);
    }
    const Variant low("s > 1");
    attn_plan *plan = nullptr;
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &call.c, low.v, &plan) == ATTN_OK);
    REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
    REQUIRE(info.blocks_part == 9);
    REQUIRE(info.blocks_full == 0);
    attn_plan_release(plan);
    info.size = 0;
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &call.c, nullptr, &plan) == ATTN_OK);
    REQUIRE(attn_plan_query(plan, &info) == ATTN_INVALID);
    REQUIRE(attn_plan_query(plan, nullptr) == ATTN_INVALID);
    REQUIRE(attn_plan_query(nullptr, &info) == ATTN_INVALID);
    REQUIRE(attn_plan_retain(plan) == plan);
    attn_plan_release(plan);
    attn_plan_release(plan);
    attn_plan_release(nullptr);
}

TEST_CASE("long sequences have larger blocks, counted once") {
    const Device device("cpu");
    const Variant mask("k <= q && (q - k < 4096 || (q / 64 + k / 64) * 3 % 7 < 2)");
    Call call;
    call.B = call.H = call.HK = call.D = call.DV = 1;
    call.NQ = call.NK = 131072;
    call.fill();
    attn_plan *plan = nullptr;
    REQUIRE(attn_plan_new(device.d, ATTN_FORWARD, &call.c, mask.v, &plan) == ATTN_OK);
    attn_plan_info info[8] = {};
    std::vector<std::thread> threads;
    for (attn_plan_info &one : info) {
        one.size = sizeof one;
        threads.emplace_back([plan, &one] { attn_plan_query(plan, &one); });
    }
    for (std::thread &t : threads) {
        t.join();
    }
    REQUIRE(info[0].block == 512);
    REQUIRE(info[0].blocks == 65536);
    REQUIRE(info[0].blocks_part > 256);
    REQUIRE(info[0].blocks_part + info[0].blocks_full <= 257 * 256 / 2);
    for (const attn_plan_info &one : info) {
        REQUIRE(std::memcmp(&one, &info[0], sizeof one) == 0);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10000; i++) {
        REQUIRE(attn_plan_query(plan, &info[0]) == ATTN_OK);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    CHECK(seconds.count() < 1); // a count takes milliseconds
    attn_plan_release(plan);
}

TEST_CASE("devices: the list, opening, memory, streams") {
    attn_device_info list[16] = {};
    list[0].size = sizeof list[0];
    const int n = attn_device_list(list, 16);
    REQUIRE(n > 4); // behind these four stand the emulated chips
    REQUIRE(std::string(list[0].name) == "cpu");
    REQUIRE(std::string(list[1].name) == "ref");
    REQUIRE(std::string(list[2].name) == "cuda:0");
    REQUIRE(std::string(list[3].name) == "hip:0");
    for (int i = 0; i < n; i++) {
        REQUIRE(list[i].index == 0);
        attn_device *d = nullptr;
        const int here = list[i].missing[0] == 0;
        REQUIRE(here == (i < 2 || i > 3));
        REQUIRE(list[i].emulated == (i > 3));
        REQUIRE((std::string(list[i].name).find("emu:") == 0) == (i > 3));
        REQUIRE(attn_device_open(list[i].name, nullptr, &d) == (here ? ATTN_OK : ATTN_DEVICE));
        REQUIRE((d != nullptr) == here);
        if (!here) {
            REQUIRE(std::strstr(attn_error(), list[i].missing) != nullptr);
        }
        attn_device_release(d);
    }
    REQUIRE(attn_device_list(nullptr, 0) == n);
    list[0].size = 0;
    REQUIRE(attn_device_list(list, 16) == ATTN_INVALID);
    REQUIRE(attn_device_list(nullptr, -1) == ATTN_INVALID);
    REQUIRE(std::string(attn_error_arg()) == "capacity");
    REQUIRE(attn_device_list(nullptr, 1) == ATTN_INVALID);
    REQUIRE(std::string(attn_error_arg()) == "list");
    attn_device *d = nullptr;
    REQUIRE(attn_device_open("abacus", nullptr, &d) == ATTN_DEVICE);
    REQUIRE(std::strstr(attn_error(), "abacus") != nullptr);
    attn_device_options options = {sizeof options, -1};
    REQUIRE(attn_device_open("cpu", &options, &d) == ATTN_INVALID);
    REQUIRE(std::string(attn_error_arg()) == "options.threads");
    options.threads = 2;
    REQUIRE(attn_device_open("ref", &options, &d) == ATTN_INVALID);
    REQUIRE(attn_device_open("auto", &options, &d) == ATTN_OK);

    attn_device_info info{};
    info.size = sizeof info;
    void *a = nullptr, *b = nullptr;
    REQUIRE(attn_buffer_new(d, 1000, &a) == ATTN_OK);
    REQUIRE(attn_buffer_new(d, 0, &b) == ATTN_OK);
    REQUIRE(reinterpret_cast<uintptr_t>(a) % 256 == 0);
    REQUIRE(b != nullptr);
    std::memset(a, 1, 1000);
    REQUIRE(attn_device_query(d, &info) == ATTN_OK);
    REQUIRE(info.used == 1000);
    REQUIRE(info.threads == 2);
    REQUIRE(std::string(info.name) == "cpu");
    REQUIRE(info.arch[0] != 0);
    attn_buffer_release(d, a);
    attn_buffer_release(d, b);
    attn_buffer_release(d, nullptr);
    REQUIRE(attn_device_query(d, &info) == ATTN_OK);
    REQUIRE(info.used == 0);
    REQUIRE(attn_buffer_new(d, uint64_t{1} << 63, &a) == ATTN_MEMORY);
    REQUIRE(a == nullptr);
    REQUIRE(std::strstr(attn_error(), "9223372036854775808") != nullptr);

    void *stream = &info;
    REQUIRE(attn_stream_new(d, &stream) == ATTN_OK);
    REQUIRE(stream == nullptr);
    REQUIRE(attn_stream_sync(d, stream) == ATTN_OK);
    REQUIRE(attn_stream_sync(d, &info) == ATTN_INVALID);
    attn_stream_release(d, stream);
    REQUIRE(attn_device_retain(d) == d);
    attn_device_release(d);
    attn_device_release(d);
    attn_device_release(nullptr);
}

TEST_CASE("copy: any strides, any types, any rank") {
    const Device device("cpu");
    const Owned from = make(ATTN_F32, {2, 3, 4}), to = make(ATTN_BF16, {2, 3, 4});
    from->fill(9);
    std::swap(to->strides[0], to->strides[2]); // not compact: [2] fastest
    to->strides = {1, 8, 2};
    REQUIRE(attn_tensor_copy(device.d, &to->t, &from->t, nullptr) == ATTN_OK);
    const auto *bits = static_cast<const uint16_t *>(to->t.data);
    for (int a = 0; a < 2; a++) {
        for (int b = 0; b < 3; b++) {
            for (int c = 0; c < 4; c++) {
                const double x = from->get(a * 12 + b * 4 + c);
                REQUIRE(bits[a + b * 8 + c * 2] == attn__f32_to_bf16(static_cast<float>(x)));
            }
        }
    }
    const Owned i32 = make(ATTN_I32, {700}), f64 = make(ATTN_F64, {700}),
                back = make(ATTN_I32, {700});
    for (int i = 0; i < 700; i++) {
        i32->set(i, 16777216 + 3.0 * i);
    }
    REQUIRE(attn_tensor_copy(device.d, &f64->t, &i32->t, nullptr) == ATTN_OK);
    back->t.data = back->storage.data();
    REQUIRE(attn_tensor_copy(device.d, &back->t, &f64->t, nullptr) == ATTN_OK);
    REQUIRE(back->get(699) == 16777216 + 3.0 * 699);
    const Owned scalar = make(ATTN_F16, {}), wide = make(ATTN_F32, {300}),
                all = make(ATTN_F16, {300});
    scalar->set(0, 2.5);
    wide->strides[0] = 0; // one element read 300 times
    wide->set(0, 7);
    REQUIRE(attn_tensor_copy(device.d, &all->t, &wide->t, nullptr) == ATTN_OK);
    REQUIRE(all->get(299) == 7);
    const Owned one = make(ATTN_F32, {});
    REQUIRE(attn_tensor_copy(device.d, &one->t, &scalar->t, nullptr) == ATTN_OK);
    REQUIRE(one->get(0) == 2.5);
    const Owned empty = make(ATTN_F32, {3, 0}), none = make(ATTN_F16, {3, 0});
    empty->t.data = none->t.data = nullptr;
    REQUIRE(attn_tensor_copy(device.d, &empty->t, &none->t, nullptr) == ATTN_OK);

    REQUIRE(attn_tensor_copy(device.d, &wide->t, &all->t, nullptr) == ATTN_LAYOUT);
    REQUIRE(std::string(attn_error_arg()) == "to");
    REQUIRE(attn_tensor_copy(device.d, &one->t, &all->t, nullptr) == ATTN_SHAPE);
    REQUIRE(attn_tensor_copy(device.d, &i32->t, &all->t, nullptr) == ATTN_SHAPE);
    REQUIRE(std::string(attn_error_arg()) == "from");
    REQUIRE(attn_tensor_copy(device.d, nullptr, &all->t, nullptr) == ATTN_INVALID);
    REQUIRE(attn_tensor_copy(nullptr, &all->t, &all->t, nullptr) == ATTN_INVALID);
}

TEST_CASE("status names, versions, struct sizes") {
    REQUIRE(std::string(attn_status_name(ATTN_SHAPE)) == "SHAPE");
    REQUIRE(std::string(attn_status_name(ATTN_UNSUPPORTED)) == "UNSUPPORTED");
    REQUIRE(std::string(attn_status_name(5)) == "unknown");
    REQUIRE(std::string(attn_version()) == "0.1.0");
    REQUIRE(attn_sizeof("attn_call") == sizeof(attn_call));
    REQUIRE(attn_sizeof("attn_plan_info") == sizeof(attn_plan_info));
    REQUIRE(attn_sizeof("attn_window") == sizeof(attn_window));
    REQUIRE(attn_sizeof("attn_nothing") == 0);
    REQUIRE(attn_sizeof(nullptr) == 0);
    // A failure is its thread's own.
    REQUIRE(attn_plan_query(nullptr, nullptr) == ATTN_INVALID);
    const std::string here = attn_error();
    std::string fresh = "?", there;
    std::thread([&] {
        fresh = attn_error();
        attn_log(nullptr, 7);
        there = attn_error();
    }).join();
    REQUIRE(fresh.empty());
    REQUIRE(there.find("level is 7") == 0);
    REQUIRE(attn_error() == here);
}

TEST_CASE("the log has a line per plan and per run") {
    const Device device("cpu");
    const Variant variant("k <= q");
    Call call;
    call.fill();
    char path[] = "/tmp/attn_plan_test_XXXXXX";
    const int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(attn_log(path, 3) == ATTN_INVALID);
    REQUIRE(attn_log(nullptr, 1) == ATTN_INVALID);
    REQUIRE(attn_log("/nonexistent/log", 1) == ATTN_IO);
    REQUIRE(attn_log(path, 1) == ATTN_OK);
    REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
    REQUIRE(attn_log(path, 2) == ATTN_OK);
    REQUIRE(run(device.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
    REQUIRE(attn_log(nullptr, 0) == ATTN_OK);
    REQUIRE(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    REQUIRE(lines.size() == 3);
    REQUIRE(lines[0].find("{\"event\":\"plan\"") == 0);
    REQUIRE(lines[0].find("\"direction\":\"forward\"") != std::string::npos);
    REQUIRE(lines[0].find("k <= q") != std::string::npos);
    REQUIRE(lines[1].find("\"direction\":\"backward\"") != std::string::npos);
    REQUIRE(lines[2].find("{\"event\":\"run\"") == 0);
    REQUIRE(lines[2].find("\"status\":\"OK\"}") != std::string::npos);
    close(file);
    std::remove(path);
}
