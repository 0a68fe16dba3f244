// emu_test.cc: the emulator's model of PTX, instruction by instruction, and what it counts.
//
// Tables are typed from the PTX ISA manual 9.0, section and figure named, and not computed by the
// code under test. Faults in kernels: emu_fault_test.cc. CDNA: emu_gcn_test.cc.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

namespace {

uint32_t bits(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    return u;
}
float number(uint32_t u) {
    float x;
    std::memcpy(&x, &u, 4);
    return x;
}

// One kernel an instruction: lane l has words in[l * width ..] and out[l * width ..].
const char *const instructions = R"(
#define LANE_IN(w)  (p->in + (u64)thread_id() * 4 * (w))
#define LANE_OUT(w) (p->out + (u64)thread_id() * 4 * (w))

#define MMA(name, call)                                                        \
    DEV void name##_body(const args *p) {                                      \
        float d[4];                                                            \
        u32 a[4], b[2];                                                        \
        for (int i = 0; i < 4; i++) { a[i] = load_u32(LANE_IN(10) + 4 * i); }  \
        for (int i = 0; i < 2; i++) { b[i] = load_u32(LANE_IN(10) + 16 + 4 * i); } \
        for (int i = 0; i < 4; i++) { d[i] = float_of(load_u32(LANE_IN(10) + 24 + 4 * i)); } \
        for (int i = 0; i < p->n; i++) { call(&d[0], &d[1], &d[2], &d[3], a, b[0], b[1]); } \
        for (int i = 0; i < 4; i++) { store_u32(LANE_OUT(4) + 4 * i, bits_of(d[i])); } \
    }                                                                          \
    ATTN_ENTRY(name, name##_body, args)
MMA(mma_f16, mma_16x8x16_f16)
MMA(mma_bf16, mma_16x8x16_bf16)
MMA(mma_tf32, mma_16x8x8_tf32)

// Shared memory holds in[0..512) as bytes; lane l gives the address in[512 + l].
DEV void stage(const args *p) {
    for (u32 i = thread_id(); i < 128; i += 32) {
        shared_store_u32(4 * i, load_u32(p->in + 4 * i));
    }
    block_sync();
}
DEV void ldmatrix_body(const args *p) {
    u32 x[4];
    stage(p);
    ldmatrix_x4(x, load_u32(p->in + 512 + 4 * thread_id()));
    for (int i = 0; i < 4; i++) { store_u32(LANE_OUT(4) + 4 * i, x[i]); }
}
ATTN_ENTRY(ldmatrix, ldmatrix_body, args)
DEV void ldmatrix_trans_body(const args *p) {
    u32 x[4];
    stage(p);
    ldmatrix_x4_trans(x, load_u32(p->in + 512 + 4 * thread_id()));
    for (int i = 0; i < 4; i++) { store_u32(LANE_OUT(4) + 4 * i, x[i]); }
}
ATTN_ENTRY(ldmatrix_trans, ldmatrix_trans_body, args)

// Two words in, one out.
#define TWO(name, expression)                                                  \
    DEV void name##_body(const args *p) {                                      \
        const u32 u = load_u32(LANE_IN(2)), v = load_u32(LANE_IN(2) + 4);      \
        const float a = float_of(u), b = float_of(v);                          \
        (void)a, (void)b;                                                      \
        store_u32(LANE_OUT(1), expression);                                    \
    }                                                                          \
    ATTN_ENTRY(name, name##_body, args)
TWO(do_max_nan, bits_of(max_nan(a, b)))
TWO(do_max_num, bits_of(max_num(a, b)))
TWO(do_exp2, bits_of(exp2_fast(a)))
TWO(do_rcp, bits_of(rcp_fast(a)))
TWO(do_sqrt, bits_of(sqrt_f32(a)))
TWO(do_div, bits_of(div_f32(a, b)))
TWO(do_fma, bits_of(fma_f32(a, b, -1.0f)))
TWO(do_pack_f16, pack_f16(a, b))
TWO(do_pack_bf16, pack_bf16(a, b))
TWO(do_of_f16, bits_of(float_of_f16(u)))
TWO(do_of_bf16, bits_of(float_of_bf16(u)))
TWO(do_first_bit, (u32)first_bit((u64)v << 32 | u))
TWO(do_mul_high, mul_high(u, v))
TWO(do_mul_high_u64, (u32)(mul_high_u64((u64)v << 32 | u, (u64)u << 32 | v) >> 16))
TWO(do_xor, bits_of(lane_xor(a, (int)v)))
TWO(do_ballot, (u32)warp_ballot((int)u))
TWO(do_where, (u32)(thread_id() + 1000 * lane_id() + 100000 * warp_id()))
)";

struct Ptx {
    emu::Chip chip{"emu:sm_80"};
    emu::Code code{chip, instructions};
    // Pairs of words, one result word each.
    std::vector<uint32_t> pairs(const char *kernel, std::vector<uint32_t> in) {
        const size_t n = in.size() / 2;
        REQUIRE(n <= 32);
        in.resize(64, in[0]);
        std::vector<uint32_t> out = code.run(kernel, in, 32);
        out.resize(n);
        return out;
    }
};

Ptx &ptx() {
    static Ptx p;
    return p;
}

// Section 9.7.14.5.8, figures "MMA .m16n8k16 fragment layout for matrix A / B / C with 16-bit": who
// holds an element: thread and index within its a, b or c.
// clang-format off
const char *const mma16_a[16] = {
    // columns 0 .. 15
    "T0a0 T0a1 T1a0 T1a1 T2a0 T2a1 T3a0 T3a1 T0a4 T0a5 T1a4 T1a5 T2a4 T2a5 T3a4 T3a5",
    "T4a0 T4a1 T5a0 T5a1 T6a0 T6a1 T7a0 T7a1 T4a4 T4a5 T5a4 T5a5 T6a4 T6a5 T7a4 T7a5",
    "T8a0 T8a1 T9a0 T9a1 T10a0 T10a1 T11a0 T11a1 T8a4 T8a5 T9a4 T9a5 T10a4 T10a5 T11a4 T11a5",
    "T12a0 T12a1 T13a0 T13a1 T14a0 T14a1 T15a0 T15a1 T12a4 T12a5 T13a4 T13a5 T14a4 T14a5 T15a4 T15a5",
    "T16a0 T16a1 T17a0 T17a1 T18a0 T18a1 T19a0 T19a1 T16a4 T16a5 T17a4 T17a5 T18a4 T18a5 T19a4 T19a5",
    "T20a0 T20a1 T21a0 T21a1 T22a0 T22a1 T23a0 T23a1 T20a4 T20a5 T21a4 T21a5 T22a4 T22a5 T23a4 T23a5",
    "T24a0 T24a1 T25a0 T25a1 T26a0 T26a1 T27a0 T27a1 T24a4 T24a5 T25a4 T25a5 T26a4 T26a5 T27a4 T27a5",
    "T28a0 T28a1 T29a0 T29a1 T30a0 T30a1 T31a0 T31a1 T28a4 T28a5 T29a4 T29a5 T30a4 T30a5 T31a4 T31a5",
    "T0a2 T0a3 T1a2 T1a3 T2a2 T2a3 T3a2 T3a3 T0a6 T0a7 T1a6 T1a7 T2a6 T2a7 T3a6 T3a7",
    "T4a2 T4a3 T5a2 T5a3 T6a2 T6a3 T7a2 T7a3 T4a6 T4a7 T5a6 T5a7 T6a6 T6a7 T7a6 T7a7",
    "T8a2 T8a3 T9a2 T9a3 T10a2 T10a3 T11a2 T11a3 T8a6 T8a7 T9a6 T9a7 T10a6 T10a7 T11a6 T11a7",
    "T12a2 T12a3 T13a2 T13a3 T14a2 T14a3 T15a2 T15a3 T12a6 T12a7 T13a6 T13a7 T14a6 T14a7 T15a6 T15a7",
    "T16a2 T16a3 T17a2 T17a3 T18a2 T18a3 T19a2 T19a3 T16a6 T16a7 T17a6 T17a7 T18a6 T18a7 T19a6 T19a7",
    "T20a2 T20a3 T21a2 T21a3 T22a2 T22a3 T23a2 T23a3 T20a6 T20a7 T21a6 T21a7 T22a6 T22a7 T23a6 T23a7",
    "T24a2 T24a3 T25a2 T25a3 T26a2 T26a3 T27a2 T27a3 T24a6 T24a7 T25a6 T25a7 T26a6 T26a7 T27a6 T27a7",
    "T28a2 T28a3 T29a2 T29a3 T30a2 T30a3 T31a2 T31a3 T28a6 T28a7 T29a6 T29a7 T30a6 T30a7 T31a6 T31a7",
};
const char *const mma16_b[16] = {
    // rows 0 .. 15, columns 0 .. 7
    "T0b0 T4b0 T8b0 T12b0 T16b0 T20b0 T24b0 T28b0", "T0b1 T4b1 T8b1 T12b1 T16b1 T20b1 T24b1 T28b1",
    "T1b0 T5b0 T9b0 T13b0 T17b0 T21b0 T25b0 T29b0", "T1b1 T5b1 T9b1 T13b1 T17b1 T21b1 T25b1 T29b1",
    "T2b0 T6b0 T10b0 T14b0 T18b0 T22b0 T26b0 T30b0", "T2b1 T6b1 T10b1 T14b1 T18b1 T22b1 T26b1 T30b1",
    "T3b0 T7b0 T11b0 T15b0 T19b0 T23b0 T27b0 T31b0", "T3b1 T7b1 T11b1 T15b1 T19b1 T23b1 T27b1 T31b1",
    "T0b2 T4b2 T8b2 T12b2 T16b2 T20b2 T24b2 T28b2", "T0b3 T4b3 T8b3 T12b3 T16b3 T20b3 T24b3 T28b3",
    "T1b2 T5b2 T9b2 T13b2 T17b2 T21b2 T25b2 T29b2", "T1b3 T5b3 T9b3 T13b3 T17b3 T21b3 T25b3 T29b3",
    "T2b2 T6b2 T10b2 T14b2 T18b2 T22b2 T26b2 T30b2", "T2b3 T6b3 T10b3 T14b3 T18b3 T22b3 T26b3 T30b3",
    "T3b2 T7b2 T11b2 T15b2 T19b2 T23b2 T27b2 T31b2", "T3b3 T7b3 T11b3 T15b3 T19b3 T23b3 T27b3 T31b3",
};
const char *const mma_c[16] = {
    "T0c0 T0c1 T1c0 T1c1 T2c0 T2c1 T3c0 T3c1",         "T4c0 T4c1 T5c0 T5c1 T6c0 T6c1 T7c0 T7c1",
    "T8c0 T8c1 T9c0 T9c1 T10c0 T10c1 T11c0 T11c1",     "T12c0 T12c1 T13c0 T13c1 T14c0 T14c1 T15c0 T15c1",
    "T16c0 T16c1 T17c0 T17c1 T18c0 T18c1 T19c0 T19c1", "T20c0 T20c1 T21c0 T21c1 T22c0 T22c1 T23c0 T23c1",
    "T24c0 T24c1 T25c0 T25c1 T26c0 T26c1 T27c0 T27c1", "T28c0 T28c1 T29c0 T29c1 T30c0 T30c1 T31c0 T31c1",
    "T0c2 T0c3 T1c2 T1c3 T2c2 T2c3 T3c2 T3c3",         "T4c2 T4c3 T5c2 T5c3 T6c2 T6c3 T7c2 T7c3",
    "T8c2 T8c3 T9c2 T9c3 T10c2 T10c3 T11c2 T11c3",     "T12c2 T12c3 T13c2 T13c3 T14c2 T14c3 T15c2 T15c3",
    "T16c2 T16c3 T17c2 T17c3 T18c2 T18c3 T19c2 T19c3", "T20c2 T20c3 T21c2 T21c3 T22c2 T22c3 T23c2 T23c3",
    "T24c2 T24c3 T25c2 T25c3 T26c2 T26c3 T27c2 T27c3", "T28c2 T28c3 T29c2 T29c3 T30c2 T30c3 T31c2 T31c3",
};
// Section 9.7.14.5.5, ".m16n8k8" with .tf32: one element a register.
const char *const mma8_a[16] = {
    "T0a0 T1a0 T2a0 T3a0 T0a2 T1a2 T2a2 T3a2",         "T4a0 T5a0 T6a0 T7a0 T4a2 T5a2 T6a2 T7a2",
    "T8a0 T9a0 T10a0 T11a0 T8a2 T9a2 T10a2 T11a2",     "T12a0 T13a0 T14a0 T15a0 T12a2 T13a2 T14a2 T15a2",
    "T16a0 T17a0 T18a0 T19a0 T16a2 T17a2 T18a2 T19a2", "T20a0 T21a0 T22a0 T23a0 T20a2 T21a2 T22a2 T23a2",
    "T24a0 T25a0 T26a0 T27a0 T24a2 T25a2 T26a2 T27a2", "T28a0 T29a0 T30a0 T31a0 T28a2 T29a2 T30a2 T31a2",
    "T0a1 T1a1 T2a1 T3a1 T0a3 T1a3 T2a3 T3a3",         "T4a1 T5a1 T6a1 T7a1 T4a3 T5a3 T6a3 T7a3",
    "T8a1 T9a1 T10a1 T11a1 T8a3 T9a3 T10a3 T11a3",     "T12a1 T13a1 T14a1 T15a1 T12a3 T13a3 T14a3 T15a3",
    "T16a1 T17a1 T18a1 T19a1 T16a3 T17a3 T18a3 T19a3", "T20a1 T21a1 T22a1 T23a1 T20a3 T21a3 T22a3 T23a3",
    "T24a1 T25a1 T26a1 T27a1 T24a3 T25a3 T26a3 T27a3", "T28a1 T29a1 T30a1 T31a1 T28a3 T29a3 T30a3 T31a3",
};
const char *const mma8_b[8] = {
    "T0b0 T4b0 T8b0 T12b0 T16b0 T20b0 T24b0 T28b0", "T1b0 T5b0 T9b0 T13b0 T17b0 T21b0 T25b0 T29b0",
    "T2b0 T6b0 T10b0 T14b0 T18b0 T22b0 T26b0 T30b0", "T3b0 T7b0 T11b0 T15b0 T19b0 T23b0 T27b0 T31b0",
    "T0b1 T4b1 T8b1 T12b1 T16b1 T20b1 T24b1 T28b1", "T1b1 T5b1 T9b1 T13b1 T17b1 T21b1 T25b1 T29b1",
    "T2b1 T6b1 T10b1 T14b1 T18b1 T22b1 T26b1 T30b1", "T3b1 T7b1 T11b1 T15b1 T19b1 T23b1 T27b1 T31b1",
};

// clang-format on
struct Place {
    int lane, index;
};
// Row r, column c of a figure.
Place place(const char *const *figure, int r, int c) {
    const char *at = figure[r];
    for (; c > 0; c--) {
        at = std::strchr(at, ' ') + 1;
    }
    Place p{};
    char letter;
    REQUIRE(std::sscanf(at, "T%d%c%d", &p.lane, &letter, &p.index) == 3);
    return p;
}

} // namespace

// Products of small integers are exact in every type, and so is their sum: any wrong place shows.
static void check_mma(const char *kernel, const char *const *fa, const char *const *fb, int k,
                      uint32_t (*encode)(int)) {
    const int per_word = k == 16 ? 2 : 1, width = 32 / per_word;
    int a[16][16], b[16][8], c[16][8];
    std::vector<uint32_t> in(32 * 10, 0);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < k; j++) {
            a[i][j] = (i * 7 + j * 13 + 5) % 17 - 8;
            const Place p = place(fa, i, j);
            in[static_cast<size_t>(p.lane * 10 + p.index / per_word)] |=
                encode(a[i][j]) << width % 32 * (p.index % per_word);
        }
        for (int j = 0; j < 8; j++) {
            c[i][j] = i * 100 - j * 31;
            const Place p = place(mma_c, i, j);
            in[static_cast<size_t>(p.lane * 10 + 6 + p.index)] = bits(static_cast<float>(c[i][j]));
        }
    }
    for (int i = 0; i < k; i++) {
        for (int j = 0; j < 8; j++) {
            b[i][j] = (i * 11 + j * 5 + 3) % 19 - 9;
            const Place p = place(fb, i, j);
            in[static_cast<size_t>(p.lane * 10 + 4 + p.index / per_word)] |=
                encode(b[i][j]) << width % 32 * (p.index % per_word);
        }
    }
    std::vector<uint32_t> out(32 * 4);
    REQUIRE(ptx().code.launch(kernel, {emu::Code::at(in), emu::Code::at(out), 1}) == ATTN_OK);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            int sum = c[i][j];
            for (int l = 0; l < k; l++) {
                sum += a[i][l] * b[l][j];
            }
            const Place p = place(mma_c, i, j);
            INFO(kernel << " row " << i << " column " << j);
            CHECK(number(out[static_cast<size_t>(p.lane * 4 + p.index)]) ==
                  static_cast<float>(sum));
        }
    }
}

TEST_CASE("mma: lanes hold what the figures show", "[ptx]") {
    NEEDS_CC();
    check_mma("mma_f16", mma16_a, mma16_b, 16,
              [](int x) -> uint32_t { return attn__f32_to_f16(static_cast<float>(x)); });
    check_mma("mma_bf16", mma16_a, mma16_b, 16,
              [](int x) -> uint32_t { return attn__f32_to_bf16(static_cast<float>(x)); });
    check_mma("mma_tf32", mma8_a, mma8_b, 8, [](int x) { return bits(static_cast<float>(x)); });
}

// Section 9.7.14.5.8 says of f16: subnormals are kept, products are exact, sums are f32.
TEST_CASE("mma: numbers", "[ptx]") {
    NEEDS_CC();
    const auto one = [](const char *kernel, uint32_t a, uint32_t b, float c) {
        std::vector<uint32_t> in(32 * 10, 0), out(32 * 4); // row 0, k 0 and k 0, column 0
        in[0] = a;
        in[4] = b;
        in[6] = bits(c);
        REQUIRE(ptx().code.launch(kernel, {emu::Code::at(in), emu::Code::at(out), 1}) == ATTN_OK);
        return number(out[0]);
    };
    CHECK(one("mma_f16", 0x0001, 0x3c00, 0) == 0x1p-24f); // the least subnormal
    CHECK(one("mma_f16", 0x0001, 0x0001, 0) == 0x1p-48f); // no f16, but exact in f32
    CHECK(one("mma_f16", 0x7bff, 0x7bff, 0) == 65504.0f * 65504.0f);
    CHECK(one("mma_f16", 0x3c01, 0x3c01, -1) == 0x1p-9f + 0x1p-20f); // 1 + 2^-10, squared
    CHECK(one("mma_f16", 0xbc00, 0x3c00, 0x1p24f) == 0x1p24f - 1);
    CHECK(one("mma_f16", 0x0c00, 0x0e00, 1) == 1);            // + 0.75 * 2^-23: rounded toward zero
    CHECK(one("mma_f16", 0x8c00, 0x0e00, 1) == 1 - 0x1p-23f); // - 0.75 * 2^-23
    CHECK(one("mma_f16", 0x7c00, 0x3c00, 0) == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(one("mma_f16", 0x7c00, 0x0000, 0)));
    CHECK(one("mma_bf16", 0x0001, 0x7f00, 0) == 0x1p-133f * 0x1p127f);
    CHECK(one("mma_bf16", 0x3f81, 0x3f81, -1) == 0x1p-6f + 0x1p-14f);
    CHECK(one("mma_bf16", 0xff80, 0x3f80, 0) == -std::numeric_limits<float>::infinity());
    // tf32: the upper 19 bits of the word count, the rest is not there.
    CHECK(one("mma_tf32", bits(1.0f) | 0x1fff, bits(3.0f) | 0x1fff, 0) == 3.0f);
    CHECK(one("mma_tf32", bits(1.0f) | 0x2000, bits(1.0f), 0) == 1 + 0x1p-10f);
}

// Section 9.7.14.5.15 and its figure: lanes 8j .. 8j + 7 give the rows of matrix j; a row's
// elements 0 1 | 2 3 | 4 5 | 6 7 go to four neighbours, row r to lanes 4r .. 4r + 3.
TEST_CASE("ldmatrix: rows to lanes", "[ptx]") {
    NEEDS_CC();
    std::vector<uint32_t> in(128 + 32);
    for (uint32_t i = 0; i < 256; i++) { // element i of 16 bits: its number
        in[i / 2] |= i << 16 * (i % 2);
    }
    static const int rows_at[32] = {// any order: row numbers of 8 elements in shared memory
                                    31, 3, 8,  22, 1,  17, 9,  14, 0,  5,  30, 12, 7,  19, 2,  25,
                                    4,  6, 11, 10, 13, 16, 15, 18, 20, 21, 24, 23, 26, 28, 27, 29};
    for (int l = 0; l < 32; l++) {
        in[static_cast<size_t>(128 + l)] = static_cast<uint32_t>(16 * rows_at[l]);
    }
    std::vector<uint32_t> out(128);
    emu::Code &code = ptx().code;
    const emu::Args args = {emu::Code::at(in), emu::Code::at(out), 1};
    static const int row_of[32] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                   4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7};
    static const int pair_of[32] = {0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6,
                                    0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6};
    REQUIRE(code.launch("ldmatrix", args, 1, 32, 512) == ATTN_OK);
    for (int l = 0; l < 32; l++) {
        for (int j = 0; j < 4; j++) {
            const int low = rows_at[8 * j + row_of[l]] * 8 + pair_of[l];
            CHECK(out[static_cast<size_t>(l * 4 + j)] ==
                  static_cast<uint32_t>(low | (low + 1) << 16));
        }
    }
    REQUIRE(code.launch("ldmatrix_trans", args, 1, 32, 512) == ATTN_OK);
    for (int l = 0; l < 32; l++) {
        for (int j = 0; j < 4; j++) {
            const int low = rows_at[8 * j + pair_of[l]] * 8 + row_of[l];
            const int high = rows_at[8 * j + pair_of[l] + 1] * 8 + row_of[l];
            CHECK(out[static_cast<size_t>(l * 4 + j)] == static_cast<uint32_t>(low | high << 16));
        }
    }
}

// -- Arithmetic: the tables of special values of each instruction's section -----------------------
namespace {
const uint32_t INF = 0x7f800000, MINUS_INF = 0xff800000, QNAN = 0x7fffffff, ONE = 0x3f800000,
               SUBNORMAL = 0x00400000, MINUS_SUBNORMAL = 0x80400000, MINUS_0 = 0x80000000;
using Words = std::vector<uint32_t>;
} // namespace

TEST_CASE("ex2.approx.ftz, 9.7.3.21", "[ptx]") {
    NEEDS_CC();
    CHECK(ptx().pairs("do_exp2", {MINUS_INF, 0, MINUS_SUBNORMAL, 0, MINUS_0, 0, 0, 0, SUBNORMAL, 0,
                                  INF, 0, 0x7f800001, 0}) ==
          Words{0, ONE, ONE, ONE, ONE, INF, QNAN});
    // 2^-127 is subnormal: 0. 2^-126, 2^127, and the first that is infinite.
    CHECK(ptx().pairs("do_exp2", {bits(-127), 0, bits(-126), 0, bits(127), 0, bits(128), 0,
                                  bits(-200), 0, bits(-126.5f), 0}) ==
          Words{0, 0x00800000, 0x7f000000, INF, 0, 0});
    Words in;
    for (int i = 0; i < 32; i++) {
        in.push_back(bits(-12.7f + 0.77f * static_cast<float>(i)));
        in.push_back(0);
    }
    const Words out = ptx().pairs("do_exp2", in);
    for (size_t i = 0; i < 32; i++) { // relative error at most 2^-22.5
        const double exact = std::exp2(static_cast<double>(number(in[2 * i])));
        CHECK(std::fabs(number(out[i]) / exact - 1) < std::exp2(-22.5));
    }
}

TEST_CASE("rcp.approx.ftz, 9.7.3.13", "[ptx]") {
    NEEDS_CC();
    CHECK(ptx().pairs("do_rcp",
                      {MINUS_INF,  0, MINUS_SUBNORMAL, 0, MINUS_0, 0, 0,           0, SUBNORMAL,  0,
                       INF,        0, 0x7fc00001,      0, bits(4), 0, bits(-0.5f), 0, 0x7f000000, 0,
                       0x7e800000, 0}) == Words{MINUS_0, MINUS_INF, MINUS_INF, INF, INF, 0, QNAN,
                                                bits(0.25f), bits(-2), 0, 0x00800000});
    CHECK(std::fabs(number(ptx().pairs("do_rcp", {bits(3), 0})[0]) * 3.0 - 1) < std::exp2(-23));
}

TEST_CASE("max and max.NaN, 9.7.3.12", "[ptx]") {
    NEEDS_CC();
    const Words in = {ONE,       bits(2),    bits(2), ONE, MINUS_0,    0,          0,
                      MINUS_0,   0x7fc00000, ONE,     ONE, 0xffc00123, 0x7fc00000, 0x7fc00000,
                      MINUS_INF, bits(-5),   INF,     ONE, SUBNORMAL,  0};
    CHECK(ptx().pairs("do_max_num", in) ==
          Words{bits(2), bits(2), 0, 0, ONE, ONE, QNAN, bits(-5), INF, SUBNORMAL});
    CHECK(ptx().pairs("do_max_nan", in) ==
          Words{bits(2), bits(2), 0, 0, QNAN, QNAN, QNAN, bits(-5), INF, SUBNORMAL});
}

// Section 9.7.9.21: the first source goes to the upper half (here: hi); .rn to nearest even;
// without .satfinite what is too large becomes infinity, and NaN the canonical one, 0x7fff.
TEST_CASE("cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32", "[ptx]") {
    NEEDS_CC();
    CHECK(ptx().pairs("do_pack_f16", {ONE, bits(-2), bits(65519.996f), bits(65520), bits(-65520),
                                      MINUS_INF, QNAN, 0xff800001, bits(0x1p-24f), bits(0x1p-25f),
                                      bits(0x1.8p-24f), bits(0x1.000002p-25f), bits(1 + 0x1p-11f),
                                      bits(1 + 3 * 0x1p-11f), MINUS_0, SUBNORMAL}) ==
          Words{0xc0003c00, 0x7c007bff, 0xfc00fc00, 0x7fff7fff, 0x00000001, 0x00010002, 0x3c023c00,
                0x00008000});
    CHECK(
        ptx().pairs("do_pack_bf16",
                    {ONE, bits(-2), 0x7f7fffff, 0x7f7f7fff, INF, MINUS_INF, QNAN, 0xffc00000,
                     0x3f808000, 0x3f818000, 0x00008000, 0x00018000, 0x80008001, 0x7f7f8000}) ==
        Words{0xc0003f80, 0x7f7f7f80, 0xff807f80, 0x7fff7fff, 0x3f823f80, 0x00020000, 0x7f808001});
}

TEST_CASE("cvt.f32.f16 and bf16", "[ptx]") {
    NEEDS_CC();
    CHECK(ptx().pairs("do_of_f16", {0x3c00, 0, 0xc000, 0, 0x0001, 0, 0x03ff, 0, 0x7bff, 0, 0x7c00,
                                    0, 0xfc00, 0, 0x7e01, 0, 0x8000, 0}) ==
          Words{ONE, bits(-2), bits(0x1p-24f), bits(1023 * 0x1p-24f), bits(65504), INF, MINUS_INF,
                QNAN, MINUS_0});
    CHECK(ptx().pairs("do_of_bf16", {0x3f80, 0, 0x0001, 0, 0x7f81, 0}) ==
          Words{ONE, 0x00010000, 0x7f810000});
}

TEST_CASE("arithmetic that C has, too", "[ptx]") {
    NEEDS_CC();
    CHECK(ptx().pairs("do_fma", {bits(1 + 0x1p-12f), bits(1 - 0x1p-12f)}) ==
          Words{bits(-0x1p-24f)}); // rounded twice it would be 0
    CHECK(ptx().pairs("do_sqrt", {bits(2), 0, bits(-1), 0}).front() == 0x3fb504f3);
    CHECK(ptx().pairs("do_div", {bits(1), bits(3)}) == Words{0x3eaaaaab});
    CHECK(ptx().pairs("do_first_bit", {8, 0, 0, 1, 0, 0x80000000, 3, 9}) == Words{3, 32, 63, 0});
    CHECK(ptx().pairs("do_mul_high", {0xffffffff, 0xffffffff, 0x10000, 0x10000}) ==
          Words{0xfffffffe, 1});
    const uint64_t x = 0xfedcba9876543210, y = 0x76543210fedcba98;
    CHECK(ptx().pairs("do_mul_high_u64", {uint32_t(x), uint32_t(x >> 32)}) ==
          Words{uint32_t((unsigned __int128)x * y >> 80)});
}

// -- Between lanes --------------------------------------------------------------------------------

TEST_CASE("shfl.bfly and vote.ballot, 9.7.9.6 and 9.7.13.10", "[ptx]") {
    NEEDS_CC();
    for (const uint32_t mask : {1u, 2u, 16u, 31u}) {
        Words in;
        for (uint32_t l = 0; l < 32; l++) {
            in.push_back(bits(static_cast<float>(l)));
            in.push_back(mask);
        }
        const Words out = ptx().pairs("do_xor", in);
        for (uint32_t l = 0; l < 32; l++) {
            CHECK(number(out[l]) == static_cast<float>(l ^ mask));
        }
    }
    Words in(64, 0);
    in[2 * 0] = in[2 * 5] = in[2 * 31] = 7;
    CHECK(ptx().pairs("do_ballot", in) == Words(32, 0x80000021));
}

TEST_CASE("where a thread is", "[emu]") {
    NEEDS_CC();
    for (const char *order : {"order=ascending", "order=descending", "order=random,seed=5"}) {
        const emu::Options options(order);
        const Words out = ptx().code.run("do_where", Words(2048), 1024, 1024);
        for (uint32_t t = 0; t < 1024; t++) {
            CHECK(out[t] == t + 1000 * (t % 32) + 100000 * (t / 32));
        }
    }
}

TEST_CASE("mma: speed", "[.speed]") {
    NEEDS_CC();
    std::vector<uint32_t> in(32 * 10, 0), out(32 * 4);
    const int n = 200000;
    for (const char *kernel : {"mma_f16", "mma_bf16", "mma_tf32"}) {
        const std::clock_t begin = std::clock();
        REQUIRE(ptx().code.launch(kernel, {emu::Code::at(in), emu::Code::at(out), n}) == ATTN_OK);
        const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        std::printf("%s: %.2f GFLOP/s\n", kernel,
                    static_cast<double>(ptx().chip.last().flops) / took * 1e-9);
    }
}
