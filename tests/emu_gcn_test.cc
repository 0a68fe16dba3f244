// emu_gcn_test.cc: the models of gfx90a's and gfx942's instructions against the vendor's tables.
//
//   layouts    every row is what AMD's matrix instruction calculator prints for one product
//   sums       arXiv 2511.10909, MIOpen's page on the MI200's MFMA: values by hand from their rules
//   lanes      entries of DS_BPERMUTE_B32, DS_PERMUTE_B32, DPP_CTRL and V_PERM_B32 in the manual
//   phases     Composable Kernel's page on bank conflicts
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "emu_host.h"

extern "C" {
#include "attn_int.h"
#include "emu/gcn.h"
}

// -- Matrix products ------------------------------------------------------------------------------
struct wave {
    uint32_t a[GCN_LANES][2] = {}, b[GCN_LANES][2] = {};
    float d[GCN_LANES][16] = {};

    void run(int chip, int type, int n) {
        gcn_mfma x = {chip, type, n, {}, {}, {}};

        for (int l = 0; l < GCN_LANES; l++) {
            x.a[l] = a[l];
            x.b[l] = b[l];
            x.d[l] = d[l];
        }
        attn__gcn_mfma(&x);
    }
};

static uint32_t bits(float x) {
    uint32_t w;
    memcpy(&w, &x, 4);
    return w;
}
static float from_bits(uint32_t w) {
    float x;
    memcpy(&x, &w, 4);
    return x;
}
static uint32_t encoded(int type, float x) {
    return type == GCN_F32 ? bits(x) : type == GCN_F16 ? attn__f32_to_f16(x) : attn__f32_to_bf16(x);
}

struct place {
    int reg, lane, half;
};
struct product {
    int n, bits, i, j, k;
    place a, b, d; // of A[i][k], B[k][j], D[i][j]
};
// clang-format off
static const product products[] = {
    {32, 16, 15, 23, 0, {0, 15, 0}, {0, 23, 0}, {7, 55, 0}}, {32, 16, 9, 8, 1, {0, 9, 1}, {0, 8, 1}, {5, 8, 0}},
    {32, 16, 3, 24, 2, {1, 3, 0}, {1, 24, 0}, {3, 24, 0}}, {32, 16, 23, 5, 3, {1, 23, 1}, {1, 5, 1}, {11, 37, 0}},
    {32, 16, 12, 26, 4, {0, 44, 0}, {0, 58, 0}, {4, 58, 0}}, {32, 16, 31, 3, 5, {0, 63, 1}, {0, 35, 1}, {15, 35, 0}},
    {32, 16, 4, 30, 6, {1, 36, 0}, {1, 62, 0}, {0, 62, 0}}, {32, 16, 2, 6, 7, {1, 34, 1}, {1, 38, 1}, {2, 6, 0}},
    {32, 16, 24, 0, 0, {0, 24, 0}, {0, 0, 0}, {12, 0, 0}}, {32, 16, 0, 20, 1, {0, 0, 1}, {0, 20, 1}, {0, 20, 0}},
    {32, 16, 27, 25, 2, {1, 27, 0}, {1, 25, 0}, {15, 25, 0}}, {32, 16, 17, 21, 3, {1, 17, 1}, {1, 21, 1}, {9, 21, 0}},
    {32, 16, 30, 29, 4, {0, 62, 0}, {0, 61, 0}, {14, 61, 0}}, {32, 16, 1, 28, 5, {0, 33, 1}, {0, 60, 1}, {1, 28, 0}},
    {32, 16, 7, 9, 6, {1, 39, 0}, {1, 41, 0}, {3, 41, 0}}, {32, 16, 16, 17, 7, {1, 48, 1}, {1, 49, 1}, {8, 17, 0}},
    {16, 16, 11, 9, 0, {0, 11, 0}, {0, 9, 0}, {3, 41, 0}}, {16, 16, 1, 15, 1, {0, 1, 1}, {0, 15, 1}, {1, 15, 0}},
    {16, 16, 13, 11, 2, {1, 13, 0}, {1, 11, 0}, {1, 59, 0}}, {16, 16, 9, 4, 3, {1, 9, 1}, {1, 4, 1}, {1, 36, 0}},
    {16, 16, 5, 8, 4, {0, 21, 0}, {0, 24, 0}, {1, 24, 0}}, {16, 16, 10, 3, 5, {0, 26, 1}, {0, 19, 1}, {2, 35, 0}},
    {16, 16, 6, 6, 6, {1, 22, 0}, {1, 22, 0}, {2, 22, 0}}, {16, 16, 8, 14, 7, {1, 24, 1}, {1, 30, 1}, {0, 46, 0}},
    {16, 16, 3, 12, 8, {0, 35, 0}, {0, 44, 0}, {3, 12, 0}}, {16, 16, 14, 10, 9, {0, 46, 1}, {0, 42, 1}, {2, 58, 0}},
    {16, 16, 12, 13, 10, {1, 44, 0}, {1, 45, 0}, {0, 61, 0}}, {16, 16, 7, 1, 11, {1, 39, 1}, {1, 33, 1}, {3, 17, 0}},
    {16, 16, 2, 7, 12, {0, 50, 0}, {0, 55, 0}, {2, 7, 0}}, {16, 16, 0, 5, 13, {0, 48, 1}, {0, 53, 1}, {0, 5, 0}},
    {16, 16, 15, 2, 14, {1, 63, 0}, {1, 50, 0}, {3, 50, 0}}, {16, 16, 4, 0, 15, {1, 52, 1}, {1, 48, 1}, {0, 16, 0}},
    {32, 32, 5, 28, 0, {0, 5, 0}, {0, 28, 0}, {1, 60, 0}}, {32, 32, 1, 8, 1, {0, 33, 0}, {0, 40, 0}, {1, 8, 0}},
    {32, 32, 14, 5, 0, {0, 14, 0}, {0, 5, 0}, {6, 37, 0}}, {32, 32, 20, 11, 1, {0, 52, 0}, {0, 43, 0}, {8, 43, 0}},
    {32, 32, 8, 13, 0, {0, 8, 0}, {0, 13, 0}, {4, 13, 0}}, {32, 32, 16, 23, 1, {0, 48, 0}, {0, 55, 0}, {8, 23, 0}},
    {32, 32, 17, 18, 0, {0, 17, 0}, {0, 18, 0}, {9, 18, 0}}, {32, 32, 28, 10, 1, {0, 60, 0}, {0, 42, 0}, {12, 42, 0}},
    {32, 32, 15, 20, 0, {0, 15, 0}, {0, 20, 0}, {7, 52, 0}}, {32, 32, 22, 17, 1, {0, 54, 0}, {0, 49, 0}, {10, 49, 0}},
    {32, 32, 10, 6, 0, {0, 10, 0}, {0, 6, 0}, {6, 6, 0}}, {32, 32, 4, 24, 1, {0, 36, 0}, {0, 56, 0}, {0, 56, 0}},
    {32, 32, 6, 3, 0, {0, 6, 0}, {0, 3, 0}, {2, 35, 0}}, {32, 32, 2, 1, 1, {0, 34, 0}, {0, 33, 0}, {2, 1, 0}},
    {32, 32, 13, 7, 0, {0, 13, 0}, {0, 7, 0}, {5, 39, 0}}, {32, 32, 19, 30, 1, {0, 51, 0}, {0, 62, 0}, {11, 30, 0}},
    {16, 32, 7, 10, 0, {0, 7, 0}, {0, 10, 0}, {3, 26, 0}}, {16, 32, 1, 2, 1, {0, 17, 0}, {0, 18, 0}, {1, 2, 0}},
    {16, 32, 5, 12, 2, {0, 37, 0}, {0, 44, 0}, {1, 28, 0}}, {16, 32, 2, 15, 3, {0, 50, 0}, {0, 63, 0}, {2, 15, 0}},
    {16, 32, 4, 6, 0, {0, 4, 0}, {0, 6, 0}, {0, 22, 0}}, {16, 32, 15, 9, 1, {0, 31, 0}, {0, 25, 0}, {3, 57, 0}},
    {16, 32, 0, 1, 2, {0, 32, 0}, {0, 33, 0}, {0, 1, 0}}, {16, 32, 9, 4, 3, {0, 57, 0}, {0, 52, 0}, {1, 36, 0}},
    {16, 32, 13, 3, 0, {0, 13, 0}, {0, 3, 0}, {1, 51, 0}}, {16, 32, 10, 7, 1, {0, 26, 0}, {0, 23, 0}, {2, 39, 0}},
    {16, 32, 8, 14, 2, {0, 40, 0}, {0, 46, 0}, {0, 46, 0}}, {16, 32, 12, 13, 3, {0, 60, 0}, {0, 61, 0}, {0, 61, 0}},
    {16, 32, 11, 5, 0, {0, 11, 0}, {0, 5, 0}, {3, 37, 0}}, {16, 32, 6, 8, 1, {0, 22, 0}, {0, 24, 0}, {2, 24, 0}},
    {16, 32, 14, 0, 2, {0, 46, 0}, {0, 32, 0}, {2, 48, 0}}, {16, 32, 3, 11, 3, {0, 51, 0}, {0, 59, 0}, {3, 11, 0}},
};
// clang-format on

static void put(uint32_t (*x)[2], place at, int type, float value) {
    x[at.lane][at.reg] |= encoded(type, value) << 16 * at.half;
}

TEST_CASE("a product of one element of each operand comes where the table says") {
    for (int chip : {GCN_90A, GCN_942}) {
        for (int type : {GCN_F16, GCN_BF16, GCN_F32}) {
            for (const product &x : products) {
                for (const product &y : products) {
                    if (x.n != y.n || x.bits != y.bits || (x.bits == 32) != (type == GCN_F32)) {
                        continue;
                    }
                    wave w;
                    put(w.a, x.a, type, 2);
                    put(w.b, y.b, type, 3);
                    w.run(chip, type, x.n);
                    float sum = 0;
                    for (const auto &lane : w.d) {
                        for (float d : lane) {
                            sum += std::fabs(d);
                        }
                    }
                    INFO(x.n << "x" << x.n << " type " << type << " A[" << x.i << "][" << x.k
                             << "] B[" << y.k << "][" << y.j << "]");
                    REQUIRE(sum == (x.k == y.k ? 6 : 0));
                    if (&x == &y) {
                        REQUIRE(w.d[x.d.lane][x.d.reg] == 6);
                    }
                }
            }
        }
    }
}

// c + a . b by one instruction, in row 0 and column 0: 32x32x8, or for f32 32x32x2.
static float dot(int chip, int type, const std::vector<float> &a, const std::vector<float> &b,
                 float c) {
    wave w;
    for (int k = 0; k < (int)b.size(); k++) {
        place at = type == GCN_F32 ? place{0, 32 * k, 0} : place{k / 2 % 2, k / 4 * 32, k % 2};
        put(w.a, at, type, a[k]);
        put(w.b, at, type, b[k]);
    }
    w.d[0][0] = c;
    w.run(chip, type, 32);
    return w.d[0][0];
}

static const float inf = std::numeric_limits<float>::infinity();
static const float nan_ = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("gfx90a takes 16-bit subnormals as 0, gfx942 does not") {
    CHECK(dot(GCN_942, GCN_F16, {0x1p-15f}, {1024}, 0) == 0x1p-5f);
    CHECK(dot(GCN_90A, GCN_F16, {0x1p-15f}, {1024}, 0) == 0);
    CHECK(dot(GCN_90A, GCN_F16, {1024}, {0x1p-24f}, 1) == 1);
    CHECK(dot(GCN_942, GCN_F16, {1024}, {0x1p-24f}, 1) == 1 + 0x1p-14f);
    CHECK(dot(GCN_90A, GCN_F16, {0x1p-14f}, {1024}, 0) == 0x1p-4f); // the smallest normal number
    CHECK(dot(GCN_942, GCN_BF16, {0x1p-127f}, {0x1p20f}, 0) == 0x1p-107f);
    CHECK(dot(GCN_90A, GCN_BF16, {0x1p-127f}, {0x1p20f}, 0) == 0);
    CHECK(dot(GCN_90A, GCN_BF16, {0x1p-126f}, {0x1p20f}, 0) == 0x1p-106f);
    // What comes out, and what is added to.
    CHECK(dot(GCN_942, GCN_BF16, {0x1p-70f}, {0x1p-70f}, 0) == 0x1p-140f);
    CHECK(dot(GCN_90A, GCN_BF16, {0x1p-70f}, {0x1p-70f}, 0) == 0);
    CHECK(dot(GCN_942, GCN_BF16, {0x1p-63f}, {-0x1p-63f}, 0x1.8p-126f) == 0x1p-127f);
    CHECK(dot(GCN_90A, GCN_BF16, {0x1p-63f}, {-0x1p-63f}, 0x1.8p-126f) == 0);
    // The sum of a pair, and of two pairs: 2^-127 on the way.
    std::vector<float> small(4, 0x1p-63f);
    CHECK(dot(GCN_942, GCN_BF16, small, {-0x1p-63f, 0x1.8p-63f, 0x1p-63f}, 0) == 0x1.8p-126f);
    CHECK(dot(GCN_90A, GCN_BF16, small, {-0x1p-63f, 0x1.8p-63f, 0x1p-63f}, 0) == 0x1p-126f);
    CHECK(dot(GCN_942, GCN_BF16, small, {-0x1p-63f, 0, 0x1.8p-63f}, 0x1p-126f) == 0x1.8p-126f);
    CHECK(dot(GCN_90A, GCN_BF16, small, {-0x1p-63f, 0, 0x1.8p-63f}, 0x1p-126f) == 0x1p-126f);
    CHECK(dot(GCN_942, GCN_F16, {0}, {0}, 0x1p-130f) == 0x1p-130f);
    CHECK(dot(GCN_90A, GCN_F16, {0}, {0}, 0x1p-130f) == 0);
    // f32 keeps them on both.
    for (int chip : {GCN_90A, GCN_942}) {
        CHECK(dot(chip, GCN_F32, {0x1p-130f}, {0x1p20f}, 0) == 0x1p-110f);
        CHECK(dot(chip, GCN_F32, {0x1p-70f}, {0x1p-70f}, 0) == 0x1p-140f);
    }
}

TEST_CASE("sums of 16-bit products are rounded as the chip does") {
    std::vector<float> tiny_a(8, 0x1p-12f), tiny_b(8, 0x1p-13f);
    tiny_a[0] = tiny_b[0] = 1;
    // 1 and seven times 2^-25: all of the seven are cut off; or two, four, and a tie of two.
    CHECK(dot(GCN_942, GCN_F16, tiny_a, tiny_b, 0) == 1);
    CHECK(dot(GCN_90A, GCN_F16, tiny_a, tiny_b, 0) == 1 + 0x1p-23f);
    // 2^-24 is the last that counts beside 1: 1 + 7 2^-24 lies between 3 and 4 times 2^-23.
    for (int k = 1; k < 8; k++) {
        tiny_a[k] = 0x1p-11f;
    }
    CHECK(dot(GCN_942, GCN_F16, tiny_a, tiny_b, 0) == 1 + 0x1p-21f);
    // Four products at a time: c = 2^24 takes two sums of 1 one by one, or one of 2.
    CHECK(dot(GCN_90A, GCN_F16, {1, 0, 0, 0, 1}, {1, 0, 0, 0, 1}, 0x1p24f) == 0x1p24f);
    CHECK(dot(GCN_90A, GCN_F16, {1, 0, 0, 1}, {1, 0, 0, 1}, 0x1p24f) == 0x1p24f + 2);
    CHECK(dot(GCN_942, GCN_F16, {1, 0, 0, 0, 1}, {1, 0, 0, 0, 1}, 0x1p24f) == 0x1p24f + 2);
    // Pairs: (2^24 + 1) is 2^24, (1 - 2^24) is what it is; or all four at once.
    CHECK(dot(GCN_90A, GCN_F16, {0x1p12f, 1, 1, 0x1p12f}, {0x1p12f, 1, 1, -0x1p12f}, 0) == 1);
    CHECK(dot(GCN_942, GCN_F16, {0x1p12f, 1, 1, 0x1p12f}, {0x1p12f, 1, 1, -0x1p12f}, 0) == 2);
    // What is added to is floored to 2^-24 of the larger.
    CHECK(dot(GCN_942, GCN_F16, {1}, {1}, -0x1p-26f) == 1 - 0x1p-24f);
    CHECK(dot(GCN_942, GCN_F16, {1}, {1}, 0x1p-25f) == 1);
    CHECK(dot(GCN_90A, GCN_F16, {1}, {1}, -0x1p-26f) == 1);
    // So is their sum, to 2^-31: here from a tie, which would go up, to below it.
    CHECK(dot(GCN_942, GCN_F16, {0x1p-12f, 0x1p-20f}, {-0x1p-12f, -0x1p-13f}, 1 + 0x1p-22f) ==
          1 + 0x1p-23f);
    CHECK(dot(GCN_942, GCN_F16, {0x1p-12f}, {-0x1p-12f}, 1 + 0x1p-22f) == 1 + 0x1p-22f);
    CHECK(dot(GCN_942, GCN_F16, {-0x1p-15f}, {0x1p-15f}, 1) == 1);
    CHECK(dot(GCN_942, GCN_F16, {-0x1p-12f}, {0x1p-12f}, 1) == 1 - 0x1p-24f);
}

TEST_CASE("f32 products are fused with the sum, in the order of k") {
    for (int chip : {GCN_90A, GCN_942}) {
        float x = 1 + 0x1p-12f;
        CHECK(dot(chip, GCN_F32, {x}, {x}, -1 - 0x1p-11f) == 0x1p-24f);
        CHECK(dot(chip, GCN_F32, {0x1p24f, 1}, {1, 1}, 1) == 0x1p24f);
        CHECK(dot(chip, GCN_F32, {1, 0x1p24f}, {1, 1}, 1) == 0x1p24f + 2);
    }
}

TEST_CASE("NaN and infinity reach their row and column alone") {
    for (int chip : {GCN_90A, GCN_942}) {
        for (int type : {GCN_F16, GCN_BF16, GCN_F32}) {
            CHECK(dot(chip, type, {inf}, {1}, 0) == inf);
            CHECK(dot(chip, type, {inf}, {-1}, 0) == -inf);
            CHECK(std::isnan(dot(chip, type, {inf}, {0}, 0)));
            CHECK(std::isnan(dot(chip, type, {inf, inf}, {1, -1}, 0)));
            CHECK(std::isnan(dot(chip, type, {nan_}, {1}, 0)));
            CHECK(std::isnan(dot(chip, type, {1}, {1}, nan_)));
            CHECK(dot(chip, type, {1}, {1}, -inf) == -inf);

            wave w;
            put(w.a, {0, 3, 0}, type, inf); // A[3][0]
            put(w.a, {0, 4, 0}, type, 1);
            put(w.b, {0, 7, 0}, type, 1); // B[0][7]
            w.run(chip, type, 32);
            CHECK(w.d[7][3] == inf);
            CHECK(w.d[39][0] == 1); // D[4][7]
            CHECK(std::isnan(w.d[6][3]));
            CHECK(w.d[38][0] == 0);
            wave edge;
            put(edge.a, {0, 31, 0}, type, 1);
            put(edge.b, {0, 31, 0}, type, nan_); // B[0][31]
            edge.run(chip, type, 32);
            CHECK(std::isnan(edge.d[63][15])); // D[31][31]
            CHECK(edge.d[62][15] == 0);
        }
        CHECK(dot(chip, GCN_BF16, {0x1p100f}, {0x1p100f}, 0) == inf);
        CHECK(dot(chip, GCN_BF16, {0x1p100f}, {-0x1p100f}, 0) == -inf);
        CHECK(std::isnan(dot(chip, GCN_BF16, {0x1p100f, 0x1p100f}, {0x1p100f, -0x1p100f}, 0)));
        CHECK(dot(chip, GCN_BF16, {0x1p64f}, {0x1p63f}, 0) == 0x1p127f);
    }
}

// -- Between lanes --------------------------------------------------------------------------------
TEST_CASE("permutations of lanes") {
    uint32_t at[GCN_LANES], x[GCN_LANES], to[GCN_LANES];
    for (uint32_t l = 0; l < GCN_LANES; l++) {
        x[l] = 100 + l;
        at[l] = (l + 3) * 4 + 256 + l % 4; // the two low bits are ignored, lanes wrap
    }
    attn__gcn_bpermute(to, at, x);
    CHECK(to[0] == 103);
    CHECK(to[60] == 163);
    CHECK(to[61] == 100);
    attn__gcn_permute(to, at, x);
    CHECK(to[3] == 100);
    CHECK(to[63] == 160);
    CHECK(to[0] == 161);
    for (uint32_t l = 0; l < GCN_LANES; l++) {
        at[l] = l < 10 ? 20 : 24;
    }
    attn__gcn_permute(to, at, x);
    CHECK(to[5] == 109); // the highest that sends
    CHECK(to[6] == 163);
    CHECK(to[0] == 0);
}

TEST_CASE("DPP controls") {
    static const struct {
        int control, lane, from;
    } table[] = {
        {0x00, 6, 4},    {0xe4, 6, 6},    {0x1b, 4, 7},    {0x1b, 5, 6},    {0xb1, 62, 63},
        {0x101, 0, 1},   {0x101, 15, -1}, {0x10f, 16, 31}, {0x10f, 17, -1}, {0x111, 1, 0},
        {0x111, 16, -1}, {0x118, 24, 16}, {0x121, 16, 31}, {0x121, 5, 4},   {0x128, 3, 11},
        {0x140, 0, 15},  {0x140, 20, 27}, {0x141, 0, 7},   {0x141, 20, 19}, {0x141, 63, 56},
        {0x142, 15, -1}, {0x142, 16, 15}, {0x142, 40, 31}, {0x142, 63, 47}, {0x143, 31, -1},
        {0x143, 32, 31}, {0x143, 63, 31}, {0x150, 9, 0},   {0x15f, 33, 47}, {0x157, 63, 55},
        {0x100, 0, -2},  {0x144, 0, -2},  {0x160, 0, -2},  {0x200, 0, -2},
    };
    for (const auto &x : table) {
        INFO("control " << x.control << " lane " << x.lane);
        CHECK(attn__gcn_dpp_from(x.control, x.lane) == x.from);
    }
}

TEST_CASE("phases of shared memory") {
    static const int read_16[8][8] = {
        {0, 1, 2, 3, 20, 21, 22, 23},     {4, 5, 6, 7, 16, 17, 18, 19},
        {8, 9, 10, 11, 28, 29, 30, 31},   {12, 13, 14, 15, 24, 25, 26, 27},
        {32, 33, 34, 35, 52, 53, 54, 55}, {36, 37, 38, 39, 48, 49, 50, 51},
        {40, 41, 42, 43, 60, 61, 62, 63}, {44, 45, 46, 47, 56, 57, 58, 59},
    };
    uint8_t order[GCN_LANES];

    attn__gcn_phases(order, 16, 0);
    for (int p = 0; p < 8; p++) {
        CHECK(std::set<int>(order + 8 * p, order + 8 * p + 8) ==
              std::set<int>(read_16[p], read_16[p] + 8));
    }
    for (int bytes : {4, 8, 16}) {
        for (int write = bytes == 16; write < 2; write++) {
            attn__gcn_phases(order, bytes, write);
            for (int l = 0; l < GCN_LANES; l++) {
                CHECK(order[l] == l);
            }
        }
    }
}

// -- One lane -------------------------------------------------------------------------------------
TEST_CASE("v_perm_b32") {
    CHECK(attn__gcn_perm(0x77665544, 0x33221100, 0x07060100) == 0x77661100);
    CHECK(attn__gcn_perm(0x77665544, 0x33221100, 0x05040302) == 0x55443322);
    CHECK(attn__gcn_perm(0x00008000, 0x80000000, 0x0b0a0908) == 0x00ffff00);
    CHECK(attn__gcn_perm(0x80000000, 0x00008000, 0x0b0a0908) == 0xff0000ff);
    CHECK(attn__gcn_perm(0x12345678, 0x9abcdef0, 0xff0d0c0c) == 0xffff0000);
}

TEST_CASE("v_cvt_pkrtz_f16_f32 rounds toward zero") {
    static const struct {
        float x;
        uint32_t half;
    } table[] = {
        {1, 0x3c00},          {1 + 0x1p-11f, 0x3c00}, {1 + 3 * 0x1p-11f, 0x3c01},
        {-1.9999f, 0xbfff},   {65504, 0x7bff},        {65519.9f, 0x7bff},
        {65520, 0x7bff},      {1e9f, 0x7bff},         {-1e9f, 0xfbff},
        {inf, 0x7c00},        {-inf, 0xfc00},         {0x1.8p-24f, 0x0001},
        {0x1.fp-25f, 0x0000}, {-0x1.fp-25f, 0x8000},  {0x1.fffp-15f, 0x03ff},
        {0.0f, 0x0000},
    };
    for (const auto &x : table) {
        INFO(x.x);
        CHECK(attn__gcn_cvt_pkrtz(x.x, 0) == x.half);
        CHECK(attn__gcn_cvt_pkrtz(1, x.x) == (x.half << 16 | 0x3c00));
    }
    CHECK((attn__gcn_cvt_pkrtz(nan_, 0) & 0x7fff) > 0x7c00);
}

TEST_CASE("v_exp_f32 and v_rcp_f32: 1 ulp, subnormals are 0") {
    for (int n = -126; n < 128; n++) {
        CHECK(attn__gcn_exp2((float)n) == std::ldexp(1.0f, n));
    }
    CHECK(attn__gcn_exp2(-126.5f) == 0);
    CHECK(attn__gcn_exp2(-127) == 0);
    CHECK(attn__gcn_exp2(-inf) == 0);
    CHECK(attn__gcn_exp2(128) == inf);
    CHECK(std::isnan(attn__gcn_exp2(nan_)));
    CHECK(attn__gcn_exp2(0x1p-130f) == 1);
    CHECK(attn__gcn_rcp(4) == 0.25f);
    CHECK(attn__gcn_rcp(0) == inf);
    CHECK(attn__gcn_rcp(-0x1.8p-127f) == -inf);
    CHECK(attn__gcn_rcp(0x1.8p126f) == 0);
    CHECK(attn__gcn_rcp(inf) == 0);
    CHECK(std::isnan(attn__gcn_rcp(nan_)));

    int better = 0, worse = 0;
    for (int n = 1; n < 4000; n++) {
        float x = n * -0.0313f, y = attn__gcn_exp2(x), z = attn__gcn_rcp(x);
        double exact = std::exp2((double)x);
        INFO(x);
        CHECK(std::fabs(z * (double)x - 1) < 0x1p-23);
        if (exact < 0x1p-126) {
            continue;
        }
        double ulp = std::nextafter(from_bits(bits((float)exact)), inf) - (double)(float)exact;
        CHECK(std::fabs(y - exact) <= ulp);
        better += y == (float)exact;
        worse += y != (float)exact;
    }
    CHECK(better > 400);
    CHECK(worse > 400);
}

// -- In a kernel ----------------------------------------------------------------------------------
// A kernel's lane l has words in[width l ..] and out[l].
static const char *const kernels = R"(
#define IN(i, width) load_u32(p->in + (u64)(thread_id() * (width) + (i)) * 4)
#define OUT(x)       store_u32(p->out + (u64)thread_id() * 4, x)
#define TWO(name, expression)                                                  \
    DEV void name##_body(const args *p) {                                      \
        const u32 u = IN(0, 2), v = IN(1, 2);                                  \
        const float a = float_of(u), b = float_of(v);                          \
        (void)a, (void)b;                                                      \
        OUT(expression);                                                       \
    }                                                                          \
    ATTN_ENTRY(name, name##_body, args)
TWO(read_lane, lane_read(u, (int)v))
TWO(permute, perm_b32(u, v, PERM_HIGH))
TWO(same, uniform(u) + uniform(7))
TWO(most, pk_max_u16(u, v))
TWO(least, pk_min_u16(u, v))
TWO(less, pk_sub_u16(u, v))
TWO(times, pk_mul_f16(u, v))
TWO(away, pack_bf16_away(a, b))
TWO(nearest_bf16, pack_bf16(a, b))
TWO(nearest_f16, pack_f16(a, b))
TWO(max_nan_of, bits_of(max_nan(a, b)))
TWO(max_num_of, bits_of(max_num(a, b)))
TWO(exp2_of, bits_of(exp2_fast(a)))
TWO(rcp_of, bits_of(rcp_fast(a)))

// a and b of lane 0 are in[0] and in[1], of the others 0: element [0][0] of the product.
DEV void mfma_body(const args *p) {
    float d[16] = {0};
    const u32 a[2] = {lane_id() == 0 ? load_u32(p->in) : 0, 0};
    const u32 b[2] = {lane_id() == 0 ? load_u32(p->in + 4) : 0, 0};
    if (p->n == 2) { mfma_32x32x8_f16(d, a, b); }
    if (p->n == 3) { mfma_32x32x8_bf16(d, a, b); }
    if (p->n == 4) { mfma_32x32x2_f32(d, float_of(a[0]), float_of(b[0])); }
    OUT(bits_of(d[0]));
}
ATTN_ENTRY(mfma, mfma_body, args)

// in[2l]: offset in the buffer at in; in[2l + 1]: added to the buffer's address.
DEV void buffer_body(const args *p) {
    const b128 x = buffer_load_b128(p->in + IN(1, 2), 1024, IN(0, 2));
    const b64 y = buffer_load_b64(p->in + IN(1, 2), 1024, IN(0, 2));
    OUT(x.w[3] + y.w[1]);
}
ATTN_ENTRY(buffer, buffer_body, args)

// Lane l reads at in[2l], or writes there if in[1] is not 0; as many words as n / 128 - 1 says.
DEV void shared_body(const args *p) {
    const u32 at = IN(0, 2), write = load_u32(p->in + 4);
    const b64 two = {{1, 2}};
    const b128 four = {{1, 2, 3, 4}};
    if (write && p->n == 256) { shared_store_b64(at, two); }
    if (write && p->n == 512) { shared_store_b128(at, four); }
    if (!write) {
        for (u32 i = 0; i < 8192 / 64; i++) { shared_store_u32(i * 256 + (u32)thread_id() * 4, i); }
        warp_sync();
        if (p->n == 256) { OUT(shared_load_b64(at).w[1]); }
        if (p->n == 512) { OUT(shared_load_b128(at).w[3]); }
    }
}
ATTN_ENTRY(shared, shared_body, args)
)";

using words = std::vector<uint32_t>;

struct gcn {
    emu::Chip chip;
    emu::Code code;

    explicit gcn(const char *name) : chip(name), code(chip, kernels) {}
    // One lane's two words and its result; the other lanes have 0.
    uint32_t one(const char *kernel, uint32_t u, uint32_t v) {
        words in(128, 0);
        in[0] = u;
        in[1] = v;
        return code.run(kernel, in, 64, 64)[0];
    }
    float product(int type, float a, float b) {
        words in(static_cast<size_t>(type + 2), 0);
        in[0] = encoded(type, a);
        in[1] = encoded(type, b);
        return from_bits(code.run("mfma", in, 64, 64)[0]);
    }
    // Words of 16 or 8 bytes, 512 or 256 of them: what lanes access, and the cycles over the least.
    uint64_t conflicts(int bytes, int write, uint32_t (*at)(uint32_t lane)) {
        words in(static_cast<size_t>(bytes * 32), 0), out(64);
        for (uint32_t l = 0; l < 64; l++) {
            in[2 * l] = at(l);
        }
        in[1] = static_cast<uint32_t>(write);
        REQUIRE(code.launch("shared", {emu::Code::at(in), emu::Code::at(out), (int32_t)in.size()},
                            1, 64, 32768) == ATTN_OK);
        const attn__emu_counts n = chip.last();
        return n.shared_cycles - n.shared_access;
    }
};

static gcn &chip_942() {
    static gcn x("emu:gfx942");
    return x;
}
static gcn &chip_90a() {
    static gcn x("emu:gfx90a");
    return x;
}
TEST_CASE("a kernel's instructions of one lane") {
    NEEDS_CC();
    gcn &g = chip_942();
    CHECK(g.one("permute", 0x44332211, 0x88776655) == 0x44338877);
    // Halves for themselves: no carry between them, as unsigned numbers.
    CHECK(g.one("most", 0x8000ffff, 0x7fff0001) == 0x8000ffff);
    CHECK(g.one("least", 0x8000ffff, 0x7fff0001) == 0x7fff0001);
    CHECK(g.one("less", 0x00000005, 0x00010006) == 0xffffffff);
    // 3 * 2^-24 subnormal times 2^10, and a tie of 1.5 * 2^-24 that goes to even.
    CHECK(g.one("times", 0x00030003, 0x38006400) == 0x00020a00);
    CHECK(g.one("times", 0x7bff3c00, 0x4000c000) == 0x7c00c000);
    // Ties: away from 0 in both, to even in both.
    CHECK(g.one("away", 0x3f808000, 0xbf818000) == 0xbf823f81);
    CHECK(g.one("away", 0x3f807fff, 0x7f800000) == 0x7f803f80);
    CHECK(g.one("nearest_bf16", 0x3f808000, 0x3f818000) == 0x3f823f80);
    CHECK(g.one("nearest_bf16", 0x3f808001, 0x7f7fffff) == 0x7f803f81);
    CHECK((g.one("nearest_bf16", 0x7f800001, 0) & 0x7fff) > 0x7f80); // NaN stays one
    CHECK(g.one("nearest_f16", bits(1 + 0x1p-11f), bits(1 + 3 * 0x1p-11f)) == 0x3c023c00);
    CHECK(g.one("nearest_f16", bits(65520), bits(0x1p-25f)) == 0x00007c00);
    CHECK(g.one("max_nan_of", bits(1), bits(-2)) == bits(1));
    CHECK(std::isnan(from_bits(g.one("max_nan_of", bits(1), bits(nan_)))));
    CHECK(std::isnan(from_bits(g.one("max_nan_of", bits(nan_), bits(1)))));
    CHECK(g.one("max_num_of", bits(1), bits(nan_)) == bits(1));
    CHECK(g.one("exp2_of", bits(-126.5f), 0) == 0);
    CHECK(g.one("rcp_of", bits(8), 0) == bits(0.125f));
}

TEST_CASE("a kernel's lanes") {
    NEEDS_CC();
    words in(128), want(64);
    for (uint32_t l = 0; l < 64; l++) {
        in[2 * l] = 7 * l;
        in[2 * l + 1] = l * l;
        want[l] = 7 * (l * l % 64);
    }
    CHECK(chip_942().code.run("read_lane", in, 64, 64) == want);

    words to(64);
    for (uint32_t l = 0; l < 64; l++) {
        in[2 * l] = 5;
    }
    CHECK(chip_942().code.run("same", in, 64, 64) == words(64, 12));
    in[2 * 33] = 6;
    CHECK(chip_942().code.launch("same", {emu::Code::at(in), emu::Code::at(to), 0}, 1, 64) < 0);
    CHECK(std::string(attn_error()).find("thread 33 has 0x6 as uniform") != std::string::npos);
}

TEST_CASE("a kernel's products are those of its chip") {
    NEEDS_CC();
    for (gcn *g : {&chip_942(), &chip_90a()}) {
        CHECK(g->product(GCN_F16, 3, 5) == 15);
        CHECK(g->product(GCN_BF16, 3, -5) == -15);
        CHECK(g->product(GCN_F32, 0x1p-130f, 0x1p20f) == 0x1p-110f);
        CHECK(g->chip.last().matrix_ops == 1);
        CHECK(g->chip.last().flops == 2 * 32 * 32 * 2);
    }
    CHECK(chip_942().product(GCN_F16, 0x1p-15f, 1) == 0x1p-15f);
    CHECK(chip_90a().product(GCN_F16, 0x1p-15f, 1) == 0);
}

TEST_CASE("a kernel's loads from a buffer") {
    NEEDS_CC();
    emu::Code &code = chip_942().code;
    words in(512, 0);
    for (uint32_t l = 0; l < 64; l++) {
        in[2 * l] = l % 2 ? 0x80000000 : l * 16;
    }
    const words out = code.run("buffer", in, 64, 64);
    CHECK(out[1] == 0);
    CHECK(out[63] == 0);
    CHECK(out[62] == 0); // words 248 to 251
    in[249] = 3;
    in[251] = 4;
    CHECK(code.run("buffer", in, 64, 64)[62] == 7);
    // 64 lanes read 4 + 2 words of their own twice over: b128 and b64 of the even ones, and `in`.
    CHECK(chip_942().chip.last().load_bytes == 32 * (16 + 8) + 64 * 4 * 4);

    words wrong = in, to(64);
    wrong[20] = 1024 - 12;
    CHECK(code.launch("buffer", {emu::Code::at(wrong), emu::Code::at(to), 128}, 1, 64) < 0);
    CHECK(std::string(attn_error())
              .find("thread 10 loads 16 bytes at 0x3f4 of a buffer of 1024 bytes") !=
          std::string::npos);
    wrong = in;
    wrong[21] = 16;
    CHECK(code.launch("buffer", {emu::Code::at(wrong), emu::Code::at(to), 128}, 1, 64) < 0);
    CHECK(std::string(attn_error()).find("thread 10 loads from a buffer of 1024 bytes at") !=
          std::string::npos);
    in[2 * 62] = 1024; // the first byte behind it, and farther
    in[2 * 60] = 0xfffffff0;
    const words behind = code.run("buffer", in, 64, 64);
    CHECK(behind[62] == 0);
    CHECK(behind[60] == 0);
}

TEST_CASE("shared memory's banks") {
    NEEDS_CC();
    gcn &g = chip_942();
    CHECK(g.conflicts(16, 0, [](uint32_t l) { return l * 16; }) == 0);
    CHECK(g.conflicts(16, 1, [](uint32_t l) { return l * 16; }) == 0);
    CHECK(g.conflicts(8, 0, [](uint32_t l) { return l * 8; }) == 0);
    CHECK(g.conflicts(8, 1, [](uint32_t l) { return l * 8; }) == 0);
    // Rows of 64 bytes: of each phase's 8 lanes, four meet in a bank; of 8-byte ones, 16 lanes.
    CHECK(g.conflicts(16, 1, [](uint32_t l) { return l * 64; }) == 8 * 3);
    CHECK(g.conflicts(8, 1, [](uint32_t l) { return l * 64; }) == 4 * 7);
    // Lanes 0-3 and 4-7 in the same banks: bad in writing, where they go together, alone.
    const auto apart = [](uint32_t l) { return l % 4 * 16 + l / 16 % 2 * 64 + l * 128; };
    CHECK(g.conflicts(16, 0, apart) == 0);
    CHECK(g.conflicts(16, 1, apart) == 8);
    // Everyone reads the same word: one cycle a phase.
    CHECK(g.conflicts(16, 0, [](uint32_t) { return 0u; }) == 0);
}
