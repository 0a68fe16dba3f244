// chip_test.cc: what chips leave alone and what they refuse, by one that is emulated.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"
#include "host_call.h"

#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace host;

// A tensor whose last byte is the last of its page: the next one may not be touched.
class Walled {
  public:
    explicit Walled(Tensor &of) : tensor(of) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const auto used = static_cast<size_t>(of.count() * attn__type_bytes(of.type()));
        const size_t pages = (used + page - 1) / page * page;
        bytes = pages + page;
        base = static_cast<char *>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(static_cast<void *>(base) != MAP_FAILED);
        REQUIRE(mprotect(base + pages, page, PROT_NONE) == 0);
        std::memcpy(base + pages - used, of.t.data, used);
        before = of.t.data;
        of.t.data = base + pages - used;
    }
    ~Walled() {
        tensor.t.data = before;
        munmap(base, bytes);
    }
    Walled(const Walled &) = delete;

  private:
    Tensor &tensor;
    char *base;
    void *before;
    size_t bytes;
};

const char *const chips[] = {"emu:sm_80", "emu:gfx942"};

// attn.h: 2^-25 and less becomes 0, 65520 and more infinite. Numbers of f32 just on the other side
// of where f16 rounds stand beside it; the infinite one is the last.
struct Rounding {
    double fine, coarse;
};
const double ulp = std::ldexp(1, -23);
const Rounding roundings[] = {
    {std::ldexp(1, -25), 0}, {std::ldexp(1 + ulp, -25), std::ldexp(1, -24)},
    {1e-8, 0},               {1 + std::ldexp(1, -11), 1},
    {65519.99, 65504},       {1 + std::ldexp(1, -11) + ulp, 1 + std::ldexp(1, -10)},
    {65520, INFINITY}};

// One of the first `most` of them in each row, of either sign; elsewhere last digits of f32.
void fill_fine(Tensor &fine, Tensor &coarse, int most) {
    const int64_t cols = fine.shape[3];
    for (int64_t n = 0; n < fine.count(); n++) {
        const int64_t row = n / cols;
        const Rounding &one = roundings[row % most];
        const double sign = row / most % 2 ? -1 : 1, x = noise(static_cast<uint64_t>(n));
        const bool here = n % cols == row % cols;
        fine.set(n, here ? sign * one.fine : x * (1 + 8 * ulp));
        coarse.set(n, here ? sign * one.coarse : x);
    }
}
bool same(const Tensor &a, const Tensor &b, bool finite) {
    for (int64_t n = 0; n < a.count(); n++) {
        const double x = a.get(n), y = b.get(n);
        if (std::isnan(x) ? finite || !std::isnan(y) : x != y || (finite && std::isinf(x))) {
            return false;
        }
    }
    return true;
}

} // namespace

TEST_CASE("rows that a tile has and a sequence lacks read nothing behind any tensor") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    for (const char *const name : chips) {
        INFO(name);
        Device device(name);
        REQUIRE(device.status == ATTN_OK);
        Call call; // 5 queries and 7 keys
        call.fill();
        Owned counts = make(ATTN_I32, {call.B, call.H, call.NQ});
        Owned indices = make(ATTN_I32, {call.B, call.H, call.NQ, 2});
        Owned scale = make(ATTN_F32, {call.B, call.H, 1});
        scale->fill_all(1);
        counts->fill_all(2);
        indices->fill_all(1);
        const attn_blocks blocks = {sizeof blocks, 0, 1, 4, &counts->t, &indices->t};
        call.c.blocks = &blocks;
        call.c.q_scale = &scale->t;
        call.c.alignment = 4;
        const Walled walls[] = {Walled(*call.q),  Walled(*call.k),   Walled(*call.v),
                                Walled(*call.o),  Walled(*call.lse), Walled(*counts),
                                Walled(*indices), Walled(*scale)};
        (void)walls;
        CHECK(run(device.d, ATTN_FORWARD, call.c, nullptr) == ATTN_OK);
        CHECK(std::isfinite(call.lse->get(call.lse->count() - 1)));
    }
}

TEST_CASE("backward reads nothing behind any tensor, either") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    for (const char *const name : chips) {
        INFO(name);
        Device device(name);
        Call call;
        call.fill();
        call.add_sink();
        call.c.dlse = &call.dlse->t;
        call.c.alignment = 4;
        const Walled walls[] = {Walled(*call.q),    Walled(*call.k),    Walled(*call.v),
                                Walled(*call.o),    Walled(*call.lse),  Walled(*call.dout),
                                Walled(*call.dlse), Walled(*call.dq),   Walled(*call.dk),
                                Walled(*call.dv),   Walled(*call.sink), Walled(*call.dsink)};
        (void)walls;
        CHECK(run(device.d, ATTN_FORWARD, call.c, nullptr) == ATTN_OK);
        CHECK(run(device.d, ATTN_BACKWARD, call.c, nullptr) == ATTN_OK);
        for (const Tensor *const grad :
             {call.dq.get(), call.dk.get(), call.dv.get(), call.dsink.get()}) {
            CHECK(std::isfinite(grad->get(grad->count() - 1)));
            CHECK(grad->get(0) != 0);
        }
    }
}

TEST_CASE("a dO finer than q counts as what q's type makes of it") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    for (const char *const name : chips) {
        INFO(name);
        Device device(name);
        for (const int most : {6, 7}) {
            Call fine, coarse;
            for (Call *const call : {&fine, &coarse}) {
                call->type = ATTN_F16;
                call->fill();
                CHECK(run(device.d, ATTN_FORWARD, call->c, nullptr) == ATTN_OK);
            }
            Owned f16 = make(ATTN_F16, fine.dout->shape);
            coarse.c.dout = &f16->t;
            fill_fine(*fine.dout, *f16, most);
            CHECK(run(device.d, ATTN_BACKWARD, fine.c, nullptr) == ATTN_OK);
            CHECK(run(device.d, ATTN_BACKWARD, coarse.c, nullptr) == ATTN_OK);
            CHECK(same(*fine.dq, *coarse.dq, most == 6));
            CHECK(same(*fine.dk, *coarse.dk, most == 6));
            CHECK(same(*fine.dv, *coarse.dv, most == 6));
        }
    }
}

TEST_CASE("gradients that many pairs share have room for so many elements") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    Device chip("emu:sm_80");
    const Variant variant("s + t[i][k]");
    for (const int64_t n : {8, 2100}) {
        Call call;
        call.fill();
        const Owned t = make(ATTN_F32, {n, n}), dt = make(ATTN_F32, {n, n});
        call.capture("t", t.get(), dt.get());
        attn_plan *plan = nullptr;
        const int status = attn_plan_new(chip.d, ATTN_BACKWARD, &call.c, variant.v, &plan);
        CHECK(status == (n == 8 ? ATTN_OK : ATTN_UNSUPPORTED));
        attn_plan_release(plan);
    }
    CHECK(std::string(attn_error_arg()) == "captures");
    CHECK(std::string(attn_error()).find("the gradient of t has 4410000 elements") == 0);
}

TEST_CASE("a run's gradients have no more elements than the plan's") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    Device chip("emu:sm_80");
    const Variant variant("s + t[k]");
    Call call;
    call.fill();
    const Owned t = make(ATTN_F32, {9}), dt = make(ATTN_F32, {9});
    call.capture("t", t.get(), dt.get());
    t->shape[0] = dt->shape[0] = 7;
    attn_plan *plan = nullptr;
    attn_plan_info info{};
    info.size = sizeof info;
    REQUIRE(attn_plan_new(chip.d, ATTN_BACKWARD, &call.c, variant.v, &plan) == ATTN_OK);
    REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
    std::vector<char> room(info.workspace + 256);
    void *const workspace =
        room.data() + (256 - reinterpret_cast<uintptr_t>(room.data()) % 256) % 256;
    CHECK(attn_run(plan, &call.c, workspace, nullptr) == ATTN_OK);
    t->shape[0] = dt->shape[0] = 9;
    CHECK(attn_run(plan, &call.c, workspace, nullptr) == ATTN_MISMATCH);
    CHECK(std::string(attn_error_arg()) == "captures.t");
    attn_plan_release(plan);
}

TEST_CASE("a chip reads captures at multiples of their size alone, a processor anywhere") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    Call call;
    call.fill();
    call.slopes = make(ATTN_F32, {call.H + 1});
    call.capture("slopes", call.slopes.get(), nullptr);
    const Variant variant("s + slopes[h]");
    call.slopes->shape[0]--;
    call.slopes->t.byte_offset = 2;
    for (const char *const name : chips) {
        Device device(name);
        CHECK(run(device.d, ATTN_FORWARD, call.c, variant.v) == ATTN_LAYOUT);
        CHECK(std::string(attn_error_arg()) == "captures.slopes");
    }
    Device cpu("cpu");
    CHECK(run(cpu.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
}

TEST_CASE("a dropout key in memory lies at a multiple of its size") {
    Call call;
    call.fill();
    uint64_t seeds[2] = {1, 2};
    call.c.dropout = 0.5;
    call.c.seed_at = reinterpret_cast<const uint64_t *>(reinterpret_cast<const char *>(seeds) + 4);
    Device cpu("cpu");
    CHECK(run(cpu.d, ATTN_FORWARD, call.c, nullptr) == ATTN_LAYOUT);
    CHECK(std::string(attn_error_arg()) == "seed_at");
    call.c.seed_at = seeds;
    CHECK(run(cpu.d, ATTN_FORWARD, call.c, nullptr) == ATTN_OK);
}

TEST_CASE("rows of a sequence are counted in 32 bits, a tile behind the last included") {
    Call call;
    call.B = call.H = call.HK = 1;
    call.fill();
    Device cpu("cpu");
    const int64_t most = INT64_C(2147483648) - 4096;
    for (const int64_t rows : {most, most + 1}) {
        call.k->shape[2] = call.v->shape[2] = rows;
        call.k->strides[2] = call.v->strides[2] = 0;
        attn_plan *plan = nullptr;
        const int status = attn_plan_new(cpu.d, ATTN_FORWARD, &call.c, nullptr, &plan);
        CHECK(status == (rows == most ? ATTN_OK : ATTN_SHAPE));
        attn_plan_release(plan);
    }
    CHECK(std::string(attn_error_arg()) == "k");
}

TEST_CASE("heads are packed into a block's rows as far as 32 bits count them") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    Device chip("emu:sm_80");
    Call call;
    call.B = call.HK = 1;
    call.NQ = 32;
    for (const int64_t heads : {4, 1 << 26}) {
        call.H = 4;
        call.fill();
        call.q->shape[1] = call.o->shape[1] = call.lse->shape[1] = heads;
        attn_plan *plan = nullptr;
        attn_plan_info info{};
        info.size = sizeof info;
        REQUIRE(attn_plan_new(chip.d, ATTN_FORWARD, &call.c, nullptr, &plan) == ATTN_OK);
        REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
        const std::string pack = heads == 4 ? " pack 4 " : " pack 1 ";
        CHECK(std::string(info.kernel).find(pack) != std::string::npos);
        attn_plan_release(plan);
    }
}
