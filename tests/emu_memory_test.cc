// emu_memory_test.cc: the emulator's models of what touches device memory, alone and with other
// blocks, of arithmetic on two numbers, and of a warp's common value.
//
// Tables are typed: PTX ISA manual 9.0, sections 9.7.9.8 ld, 9.7.9.12 st, 9.7.13.5 atom, 9.7.13.6
// red, 9.7.9.6 shfl.sync, 9.7.3 fma and add; of CDNA the manuals' GLOBAL_ATOMIC_.._X2 and V_PK_..
// What a test of many blocks expects is the same in every order, so all orders are tried.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

const char *const all_chips[] = {"emu:sm_80", "emu:sm_90a", "emu:gfx90a", "emu:gfx942"};
const char *const nvidia[] = {"emu:sm_80", "emu:sm_90a"};
const char *const orders[] = {"order=ascending", "order=descending", "order=random,seed=5"};

float number(uint32_t u) {
    float x;
    std::memcpy(&x, &u, 4);
    return x;
}
uint32_t bits(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    return u;
}

// In each of `orders`.
template <class F> void in_all_orders(F f) {
    for (const char *order : orders) {
        emu::Options options(order);
        INFO(order);
        f();
    }
}

const char *const texts = R"(
#define IN(i) (p->in + 4 * (u64)(i))
#define OUT(i) (p->out + 4 * (u64)(i))
// Four words a thread; the first two are changed.
DEV void do_fma_body(const args *p) {
    const int t = thread_id();
    float x[2] = {float_of(load_u32(IN(4 * t))), float_of(load_u32(IN(4 * t + 1)))};
    fma_two(x, float_of(load_u32(IN(4 * t + 2))), float_of(load_u32(IN(4 * t + 3))));
    store_u32(OUT(2 * t), bits_of(x[0]));
    store_u32(OUT(2 * t + 1), bits_of(x[1]));
}
ATTN_ENTRY(do_fma, do_fma_body, args)
DEV void do_add_body(const args *p) {
    const int t = thread_id();
    float x[2] = {float_of(load_u32(IN(4 * t))), float_of(load_u32(IN(4 * t + 1)))};
    const float y[2] = {float_of(load_u32(IN(4 * t + 2))), float_of(load_u32(IN(4 * t + 3)))};
    add_two(x, y);
    store_u32(OUT(2 * t), bits_of(x[0]));
    store_u32(OUT(2 * t + 1), bits_of(x[1]));
}
ATTN_ENTRY(do_add, do_add_body, args)
// A thread's 16 bytes, the words turned by one.
DEV void do_b128_body(const args *p) {
    const b128 x = load_b128(IN(4 * thread_id()));
    const b128 y = {{x.w[1], x.w[2], x.w[3], x.w[0]}};
    store_b128(OUT(4 * thread_id()), y);
}
ATTN_ENTRY(do_b128, do_b128_body, args)
DEV void load_at_body(const args *p) { store_u32(p->out, load_b128(p->in).w[0]); }
ATTN_ENTRY(load_at, load_at_body, args)
DEV void store_at_body(const args *p) {
    const b128 x = {{1, 2, 3, 4}};
    store_b128(p->out, x);
}
ATTN_ENTRY(store_at, store_at_body, args)
// All threads of all blocks to the same place: what `in` has, ISA_ADDS numbers for f32.
DEV void add_u64_body(const args *p) { atomic_add_u64(p->out, load_u64(p->in)); }
ATTN_ENTRY(add_u64, add_u64_body, args)
DEV void add_f32_body(const args *p) {
    float x[ISA_ADDS];
    for (int i = 0; i < ISA_ADDS; i++) { x[i] = float_of(load_u32(IN(i))); }
    atomic_add_f32(p->out, x);
    if (thread_id() + block_id() == 0) { store_u32(OUT(8), ISA_ADDS); }
}
ATTN_ENTRY(add_f32, add_f32_body, args)
// n bits to a word: a thread has its own.
DEV void or_u32_body(const args *p) {
    const int bit = (int)block_id() * 64 + thread_id();
    if (load_u32(IN(bit))) { atomic_or_u32(OUT(bit / 32), 1u << bit % 32); }
}
ATTN_ENTRY(or_u32, or_u32_body, args)
// A lane has an access of its own, in the bank of another lane's next one.
DEV void way_body(const args *p) {
    if (thread_id() == 0) { shared_store_u32(4096 + 4, 1); }
    shared_store_u32((u32)(p->n * thread_id()), 1);
}
ATTN_ENTRY(way, way_body, args)
)";

// What NVIDIA's chips have besides.
const char *const nvidia_texts = R"(
#define IN(i) (p->in + 4 * (u64)(i))
#define OUT(i) (p->out + 4 * (u64)(i))
DEV void next_body(const args *p) {
    const i64 first = (block_id() * 32 + thread_id()) * p->n;
    for (int i = 0; i < p->n; i++) { store_u32(OUT(first + i), atomic_next_u32(p->in)); }
}
ATTN_ENTRY(next, next_body, args)
// A chain: block b writes 3 more than block b - 1, whose word it waits for. What it has to write
// is not there at once.
DEV void chain_body(const args *p) {
    const i64 b = block_id();
    if (thread_id() == 0) {
        u32 x = 0;
        if (b > 0) {
            wait_u32(IN(b - 1), (u32)b);
            x = load_u32(OUT(b - 1));
        }
        for (volatile int i = 0; i < p->n; i++) {}
        store_u32(OUT(b), x + 3);
        store_release_u32(IN(b), (u32)b + 1);
    }
}
ATTN_ENTRY(chain, chain_body, args)
)";
const char *const same_text = R"(
#include "isa/ptx_sm90.h"
DEV void same_body(const args *p) {
    const u64 own = 4 * (u64)thread_id();
    store_u32(p->out + own, warp_same(load_u32(p->in + own)));
    store_u32(p->out + 512 + own, warp_from(load_u32(p->in + own), thread_id() / 32 * 10));
}
ATTN_ENTRY(same, same_body, args)
)";

} // namespace

TEST_CASE("fma_two rounds once, add_two once each", "[memory]") {
    NEEDS_CC();
    const float inf = INFINITY, e = 0x1p-12f;
    struct Row {
        float x0, x1, a, b, fma0, fma1;
    };
    static const Row fma[] = {
        {2, 3, 5, 7, 17, 22},                                      // x a + b, each with its own x
        {1 + e, 1 - e, 1 + e, -1, 0x1p-11f + 0x1p-24f, -0x1p-24f}, // products are not rounded
        {0x1p127f, -0x1p127f, 2, 0, inf, -inf},
        {0x1p127f, -0x1p127f, 2, -0x1p127f, 0x1p127f, -inf}, // nor do they overflow
        {inf, 0, 0, 1, NAN, 1},
        {0x1p-149f, 0x1p-126f, 1, 0x1p-149f, 0x1p-148f, 0x1p-126f + 0x1p-149f}, // subnormals stay
        {-1, 1, 0, 0, 0, 0},
    };
    struct Sum {
        float x0, x1, y0, y1, sum0, sum1;
    };
    static const Sum add[] = {
        {1, 10, 200, 3000, 201, 3010},
        {0x1p24f, 0x1p24f + 2, 1, 1, 0x1p24f, 0x1p24f + 4}, // ties to even
        {inf, inf, -inf, 1, NAN, inf},
        {0x1p127f, -0x1p127f, 0x1p127f, -0x1p127f, inf, -inf},
        {0x1p-149f, 0x1p-126f, 0x1p-149f, -0x1p-149f, 0x1p-148f, 0x1p-126f - 0x1p-149f},
        {-0.0f, 0.0f, 0.0f, -0.0f, 0.0f, 0.0f},
    };
    const auto check = [](emu::Code &code, const char *kernel, const float(*rows)[6], size_t n) {
        std::vector<uint32_t> in(4 * 64, 0);
        for (size_t r = 0; r < n; r++) {
            std::memcpy(&in[4 * r], rows[r], 16);
        }
        const std::vector<uint32_t> out = code.run(kernel, in, 128, 64);
        for (size_t r = 0; r < n; r++) {
            for (size_t i = 0; i < 2; i++) {
                const float want = rows[r][4 + i], have = number(out[2 * r + i]);
                INFO(kernel << " row " << r << " number " << i << ": " << have << ", not " << want);
                CHECK((std::isnan(want)
                           ? std::isnan(have)
                           : have == want && std::signbit(have) == std::signbit(want)));
            }
        }
    };
    for (const char *name : all_chips) {
        INFO(name);
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        check(code, "do_fma", reinterpret_cast<const float(*)[6]>(fma), sizeof fma / sizeof *fma);
        check(code, "do_add", reinterpret_cast<const float(*)[6]>(add), sizeof add / sizeof *add);
    }
}

TEST_CASE("16 bytes: words in their order, nothing beside them", "[memory]") {
    NEEDS_CC();
    alignas(16) static uint32_t in[64 * 4], out[66 * 4];
    for (const char *name : all_chips) {
        INFO(name);
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        for (uint32_t i = 0; i < 64 * 4; i++) {
            in[i] = 0x01000000u * (i % 4) + i;
        }
        std::fill(std::begin(out), std::end(out), 0xdeadbeefu);
        const auto at = [](const uint32_t *x) { return reinterpret_cast<uint64_t>(x); };
        REQUIRE(code.launch("do_b128", {at(in), at(out + 4), 0}, 1, 64) == ATTN_OK);
        CHECK(out[3] == 0xdeadbeef);
        CHECK(out[4] == 0x01000001); // of thread 0, word 1
        CHECK(out[5] == 0x02000002);
        CHECK(out[6] == 0x03000003);
        CHECK(out[7] == 0x00000000);
        CHECK(out[4 + 63 * 4] == 0x010000fd); // of thread 63
        CHECK(out[4 + 63 * 4 + 3] == 0x000000fc);
        CHECK(out[4 + 64 * 4] == 0xdeadbeef);
        // Memory may be read and written 16 bytes at a time where the address is a multiple.
        CHECK(code.launch("load_at", {at(in) + 8, at(out), 0}, 1, 64) == ATTN_DRIVER);
        CHECK_THAT(attn_error(), Catch::Contains("16"));
        CHECK(code.launch("store_at", {at(in), at(out) + 4, 0}, 1, 64) == ATTN_DRIVER);
        CHECK_THAT(attn_error(), Catch::Contains("16"));
        CHECK(code.launch("load_at", {at(in) + 16, at(out), 0}, 1, 64) == ATTN_OK);
        CHECK(out[0] == 0x00000004);
    }
}

TEST_CASE("atomic_add_u64: no sum is lost, carries go up", "[memory]") {
    NEEDS_CC();
    struct Row {
        uint64_t before, x, after; // after 6 blocks of 64 threads, 384 times x
    };
    static const Row rows[] = {
        {0, 1, 384},
        {0xffffffffu, 1, 0x10000017fu},
        {5, 0x100000001u, 0x18000000185u},
        {0, ~UINT64_C(0), UINT64_C(0xfffffffffffffe80)}, // -384
        {UINT64_C(0xffffffffffffffff), 1, 383},
    };
    for (const char *name : all_chips) {
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        in_all_orders([&] {
            for (const Row &row : rows) {
                INFO(name << " " << row.before << " + 384 times " << row.x);
                std::vector<uint64_t> in = {row.x}, out = {row.before, 77};
                REQUIRE(code.launch("add_u64", {emu::Code::at(in), emu::Code::at(out), 0}, 6, 64) ==
                        ATTN_OK);
                CHECK(out[0] == row.after);
                CHECK(out[1] == 77);
            }
        });
    }
}

TEST_CASE("atomic_add_f32: each number its own sum", "[memory]") {
    NEEDS_CC();
    for (const char *name : all_chips) {
        const bool four = std::string(name) == "emu:sm_90a"; // red's .v4 is sm_90's
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        in_all_orders([&] {
            INFO(name);
            std::vector<uint32_t> in = {bits(1.5f), bits(-2), bits(0x1p20f), bits(NAN)};
            alignas(16) uint32_t out[9] = {bits(0.25f), bits(7), bits(0x1p30f), bits(1), bits(9)};
            const emu::Args args = {emu::Code::at(in), reinterpret_cast<uint64_t>(out), 0};
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == 576.25f); // 384 times 1.5, and 0.25
            CHECK(number(out[1]) == (four ? -761.0f : 7.0f));
            CHECK(number(out[2]) == (four ? 0x1p30f + 384 * 0x1p20f : 0x1p30f));
            CHECK(std::isnan(number(out[3])) == four);
            CHECK(number(out[4]) == 9);
            CHECK(out[8] == (four ? 4u : 1u));
            // Each sum is rounded to nearest, ties to even: 1 and 384 times 2^-24 stay 1.
            in.assign(4, bits(0x1p-24f));
            std::fill(out, out + 4, bits(1));
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == 1);
            // 2^24 - 384 + 384 is exact; an infinity stays.
            in.assign(4, bits(1));
            out[0] = bits(0x1p24f - 384);
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == 0x1p24f);
            out[0] = bits(-INFINITY);
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == -INFINITY);
            // Subnormals, come or go, are 0 but on gfx942; a sum of them may be no subnormal.
            const bool keeps = std::string(name) == "emu:gfx942";
            in.assign(4, bits(0x1p-130f));
            out[0] = bits(0x1p-126f);
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == (keeps ? 25 * 0x1p-126f : 0x1p-126f)); // and 384 / 16
            in.assign(4, bits(-0x1p-126f));
            out[0] = bits(384.5f * 0x1p-126f);
            REQUIRE(code.launch("add_f32", args, 6, 64) == ATTN_OK);
            CHECK(number(out[0]) == (keeps ? 0x1p-127f : 0)); // a half is left of it
        });
    }
}

TEST_CASE("banks: what lanes do by one instruction is one access of the warp", "[memory]") {
    NEEDS_CC();
    for (const char *name : all_chips) {
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        const auto conflicts = [&](int stride) {
            REQUIRE(code.launch("way", {0, 0, stride}, 1, 64, 8192) == ATTN_OK);
            return chip.last().shared_cycles - chip.last().shared_access;
        };
        INFO(name);
        CHECK(conflicts(4) == 0);
        CHECK(conflicts(128) > 16);
    }
}

TEST_CASE("atomic_or_u32: bits are added, none taken", "[memory]") {
    NEEDS_CC();
    for (const char *name : all_chips) {
        emu::Chip chip(name);
        emu::Code code(chip, texts);
        in_all_orders([&] {
            INFO(name);
            std::vector<uint32_t> in(256, 1), out = {0, 0x80000001, 0, 0x0000ff00, 0, 0, 0, 0, 77};
            in[0] = in[31] = 0;                                       // word 0: but two
            std::fill(in.begin() + 32, in.begin() + 63, 0u);          // word 1: 31, which is there
            std::fill(in.begin() + 65, in.begin() + 96, 0u);          // word 2: one
            std::fill(in.begin() + 96 + 8, in.begin() + 96 + 16, 0u); // word 3: but 8 .. 15
            REQUIRE(code.launch("or_u32", {emu::Code::at(in), emu::Code::at(out), 0}, 4, 64) ==
                    ATTN_OK);
            CHECK(out == std::vector<uint32_t>{0x7ffffffe, 0x80000001, 1, 0xffffffff, 0xffffffff,
                                               0xffffffff, 0xffffffff, 0xffffffff, 77});
        });
    }
}

TEST_CASE("atomic_next_u32: each number is given once", "[memory]") {
    NEEDS_CC();
    for (const char *name : nvidia) {
        emu::Chip chip(name);
        emu::Code code(chip, nvidia_texts);
        in_all_orders([&] {
            INFO(name);
            std::vector<uint32_t> word = {1000, 77}, out(8 * 32 * 50);
            REQUIRE(code.launch("next", {emu::Code::at(word), emu::Code::at(out), 50}, 8) ==
                    ATTN_OK);
            CHECK(word == std::vector<uint32_t>{13800, 77});
            std::sort(out.begin(), out.end());
            for (uint32_t i = 0; i < 12800; i++) {
                REQUIRE(out[i] == 1000 + i); // the number before
            }
            word[0] = 0xffffffff; // the next one is 0
            out.assign(32, 5);
            REQUIRE(code.launch("next", {emu::Code::at(word), emu::Code::at(out), 1}) == ATTN_OK);
            CHECK(word == std::vector<uint32_t>{31, 77});
            CHECK(std::count(out.begin(), out.end(), 0xffffffffu) == 1);
            CHECK(std::count(out.begin(), out.end(), 30u) == 1);
        });
    }
}

TEST_CASE("wait_u32 sees what came before store_release_u32", "[memory]") {
    NEEDS_CC();
    for (const char *name : nvidia) {
        emu::Chip chip(name);
        emu::Code code(chip, nvidia_texts);
        INFO(name);
        std::vector<uint32_t> words(6, 0), out(6, 0);
        REQUIRE(code.launch("chain", {emu::Code::at(words), emu::Code::at(out), 3000000}, 6) ==
                ATTN_OK);
        CHECK(words == std::vector<uint32_t>{1, 2, 3, 4, 5, 6});
        CHECK(out == std::vector<uint32_t>{3, 6, 9, 12, 15, 18});
    }
}

TEST_CASE("warp_same, warp_from: a lane's word in all lanes of its warp", "[memory]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_90a");
    emu::Code code(chip, same_text);
    in_all_orders([&] {
        std::vector<uint32_t> in(128);
        for (uint32_t i = 0; i < 128; i++) {
            in[i] = 500 - i;
        }
        in[64] = 0xffffffff;
        const std::vector<uint32_t> out = code.run("same", in, 256, 128);
        static const uint32_t of_warp[] = {500, 468, 0xffffffff, 404}; /* from lane 0 */
        static const uint32_t from[] = {500, 458, 416, 374};           /* from 10 times the warp */
        for (uint32_t i = 0; i < 128; i++) {
            INFO("thread " << i);
            CHECK(out[i] == of_warp[i / 32]);
            CHECK(out[128 + i] == from[i / 32]);
        }
    });
}
