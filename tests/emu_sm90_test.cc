// emu_sm90_test.cc: the emulator's model of what sm_90a has besides the instructions of
// emu_test.cc: wgmma, mbarriers, copies of boxes.
//
// Tables are typed from the PTX ISA manual 9.0, section and figure named, and not computed by the
// code under test. Faults: emu_sm90_fault_test.cc.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

extern "C" {
#include "emu/ptx_wgmma.h"
}

namespace {

enum { SHARED = 64 << 10, LANES = 128, REGS = 128 };

// What a kernel of a product is given and gives.
struct Product {
    uint64_t a = 0, b = 0;          // descriptors
    int32_t add = 1, times = 1;     // how often, in one set
    uint32_t registers[LANES][4]{}; // a
    float d[LANES][REGS]{};         // as the manual numbers them
    uint8_t shared[SHARED]{};
};

const char *const products = R"(
#include "isa/ptx_sm90.h"
typedef struct product {
    u64 a, b;
    i32 add, times;
    u32 registers[128][4];
    float d[128][128];
    u32 shared[16384];
} product;
#define PRODUCT(name, n, call)                                                  \
    DEV void name##_body(const args *p) {                                       \
        product *const w = (product *)p->in;                                    \
        const int t = thread_id();                                              \
        float x[n / 4], y[n / 4];                                               \
        for (u32 i = (u32)t; i < 16384; i += 128) {                             \
            shared_store_u32(4 * i, w->shared[i]);                              \
        }                                                                       \
        for (int i = 0; i < n / 4; i++) {                                       \
            x[i] = w->d[t][i / 2 * 4 + i % 2];                                  \
            y[i] = w->d[t][i / 2 * 4 + i % 2 + 2];                              \
        }                                                                       \
        proxy_fence();                                                          \
        block_sync();                                                           \
        wgmma_fence();                                                          \
        for (int i = 0; i < w->times; i++) { call; }                            \
        wgmma_commit();                                                         \
        wgmma_wait(0);                                                          \
        for (int i = 0; i < n / 4; i++) {                                       \
            w->d[t][i / 2 * 4 + i % 2] = x[i];                                  \
            w->d[t][i / 2 * 4 + i % 2 + 2] = y[i];                              \
        }                                                                       \
    }                                                                           \
    ATTN_ENTRY(name, name##_body, args)
#define SS(n, type) \
    PRODUCT(ss_##type##_##n, n, wgmma_64x##n##x16_ss_##type(x, y, w->a, w->b, w->add))
#define RS(n, type) \
    PRODUCT(rs_##type##_##n, n, wgmma_64x##n##x16_rs_##type(x, y, w->registers[t], w->b))
#define TT(n, type) \
    PRODUCT(tt_##type##_##n, n, wgmma_64x##n##x16_tt_##type(x, y, w->a, w->b, w->add))
TT(32, f16) TT(64, bf16)
SS(32, f16) SS(80, bf16) SS(192, f16) SS(128, bf16)
RS(32, f16) RS(64, bf16) RS(256, f16) RS(128, bf16)
)";

struct Sm90 {
    emu::Chip chip{"emu:sm_90a"};
    emu::Code code{chip, products};
    void run(const char *kernel, Product &p) {
        if (code.launch(kernel, {reinterpret_cast<uint64_t>(&p), 0, 0}, 1, LANES, SHARED) < 0) {
            FAIL(kernel << ": " << attn_error());
        }
    }
};

Sm90 &sm90() {
    static Sm90 s;
    return s;
}

// Section 9.7.15.5.1.1, figures "WGMMA .m64nNk16 register fragment layout for matrix A" and "..
// accumulator matrix D": who holds rows 0, 1, 7, 8, 15, 16, 40, 63, and columns 0 .. 15 (A), 0 ..
// 7, 8 .. 15, 24 .. 31 (D).
struct Row {
    int row;
    const char *a, *d0, *d8, *d24;
};
// clang-format off
const Row figure[] = {
    {0, "T0a0 T0a1 T1a0 T1a1 T2a0 T2a1 T3a0 T3a1 T0a4 T0a5 T1a4 T1a5 T2a4 T2a5 T3a4 T3a5",
     "T0d0 T0d1 T1d0 T1d1 T2d0 T2d1 T3d0 T3d1", "T0d4 T0d5 T1d4 T1d5 T2d4 T2d5 T3d4 T3d5",
     "T0d12 T0d13 T1d12 T1d13 T2d12 T2d13 T3d12 T3d13"},
    {1, "T4a0 T4a1 T5a0 T5a1 T6a0 T6a1 T7a0 T7a1 T4a4 T4a5 T5a4 T5a5 T6a4 T6a5 T7a4 T7a5",
     "T4d0 T4d1 T5d0 T5d1 T6d0 T6d1 T7d0 T7d1", "T4d4 T4d5 T5d4 T5d5 T6d4 T6d5 T7d4 T7d5",
     "T4d12 T4d13 T5d12 T5d13 T6d12 T6d13 T7d12 T7d13"},
    {7, "T28a0 T28a1 T29a0 T29a1 T30a0 T30a1 T31a0 T31a1 T28a4 T28a5 T29a4 T29a5 T30a4 T30a5 T31a4 T31a5",
     "T28d0 T28d1 T29d0 T29d1 T30d0 T30d1 T31d0 T31d1", "T28d4 T28d5 T29d4 T29d5 T30d4 T30d5 T31d4 T31d5",
     "T28d12 T28d13 T29d12 T29d13 T30d12 T30d13 T31d12 T31d13"},
    {8, "T0a2 T0a3 T1a2 T1a3 T2a2 T2a3 T3a2 T3a3 T0a6 T0a7 T1a6 T1a7 T2a6 T2a7 T3a6 T3a7",
     "T0d2 T0d3 T1d2 T1d3 T2d2 T2d3 T3d2 T3d3", "T0d6 T0d7 T1d6 T1d7 T2d6 T2d7 T3d6 T3d7",
     "T0d14 T0d15 T1d14 T1d15 T2d14 T2d15 T3d14 T3d15"},
    {15, "T28a2 T28a3 T29a2 T29a3 T30a2 T30a3 T31a2 T31a3 T28a6 T28a7 T29a6 T29a7 T30a6 T30a7 T31a6 T31a7",
     "T28d2 T28d3 T29d2 T29d3 T30d2 T30d3 T31d2 T31d3", "T28d6 T28d7 T29d6 T29d7 T30d6 T30d7 T31d6 T31d7",
     "T28d14 T28d15 T29d14 T29d15 T30d14 T30d15 T31d14 T31d15"},
    {16, "T32a0 T32a1 T33a0 T33a1 T34a0 T34a1 T35a0 T35a1 T32a4 T32a5 T33a4 T33a5 T34a4 T34a5 T35a4 T35a5",
     "T32d0 T32d1 T33d0 T33d1 T34d0 T34d1 T35d0 T35d1", "T32d4 T32d5 T33d4 T33d5 T34d4 T34d5 T35d4 T35d5",
     "T32d12 T32d13 T33d12 T33d13 T34d12 T34d13 T35d12 T35d13"},
    {40, "T64a2 T64a3 T65a2 T65a3 T66a2 T66a3 T67a2 T67a3 T64a6 T64a7 T65a6 T65a7 T66a6 T66a7 T67a6 T67a7",
     "T64d2 T64d3 T65d2 T65d3 T66d2 T66d3 T67d2 T67d3", "T64d6 T64d7 T65d6 T65d7 T66d6 T66d7 T67d6 T67d7",
     "T64d14 T64d15 T65d14 T65d15 T66d14 T66d15 T67d14 T67d15"},
    {63, "T124a2 T124a3 T125a2 T125a3 T126a2 T126a3 T127a2 T127a3 T124a6 T124a7 T125a6 T125a7 T126a6 T126a7 T127a6 T127a7",
     "T124d2 T124d3 T125d2 T125d3 T126d2 T126d3 T127d2 T127d3", "T124d6 T124d7 T125d6 T125d7 T126d6 T126d7 T127d6 T127d7",
     "T124d14 T124d15 T125d14 T125d15 T126d14 T126d15 T127d14 T127d15"},
};
// clang-format on
struct Place {
    int lane, index;
};
Place place(const char *at, int column) {
    for (; column > 0; column--) {
        at = std::strchr(at, ' ') + 1;
    }
    Place p{};
    char letter;
    REQUIRE(std::sscanf(at, "T%d%c%d", &p.lane, &letter, &p.index) == 3);
    return p;
}

uint16_t encode(bool bf16, float x) {
    return bf16 ? attn__f32_to_bf16(x) : attn__f32_to_f16(x);
}
void put(uint8_t *shared, uint32_t at, uint16_t x) {
    std::memcpy(shared + at, &x, 2);
}

// 128-byte swizzle, section 5.5.6: the 16-byte part c of row r at place c ^ (r % 8).
uint32_t swizzled(uint32_t row, uint32_t byte) {
    return row * 128 + ((byte / 16 ^ row % 8) * 16 | byte % 16);
}
uint64_t descriptor(uint64_t swizzle, uint64_t at, uint64_t leading, uint64_t stride) {
    return swizzle << 62 | stride / 16 << 32 | leading / 16 << 16 | at / 16;
}

int a_of(int i, int k) {
    return (i * 7 + k * 13 + 5) % 17 - 8;
}
int b_of(int k, int j) {
    return (k * 11 + j * 5 + 3) % 19 - 9;
}

} // namespace

// All rows of d are placed by the fragment's rule, and the figure's rows compared with the figure.
static void check_product(const char *kernel, int n, bool bf16, bool registers) {
    const auto p = std::make_unique<Product>();
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 64 && !registers; i++) { // k in rows: 2 k bytes from 32 on
            put(p->shared, swizzled(static_cast<uint32_t>(i), static_cast<uint32_t>(32 + 2 * k)),
                encode(bf16, static_cast<float>(a_of(i, k))));
        }
        for (int j = 0; j < n; j++) {
            const uint32_t at = 8192 + (registers ? static_cast<uint32_t>(j) / 64 * 4096 : 0);
            const uint32_t row = static_cast<uint32_t>(registers ? k : j);
            const uint32_t byte = static_cast<uint32_t>(registers ? j % 64 * 2 : 2 * k);
            put(p->shared, at + swizzled(row, byte), encode(bf16, static_cast<float>(b_of(k, j))));
        }
    }
    for (int i = 0; i < 64 && registers; i++) {
        for (int k = 0; k < 16; k++) {
            const uint32_t x = encode(bf16, static_cast<float>(a_of(i, k)));
            p->registers[i / 16 * 32 + i % 8 * 4 + k % 8 / 2][i % 16 / 8 + k / 8 * 2] |=
                x << 16 * (k % 2);
        }
    }
    for (int l = 0; l < LANES; l++) {
        for (int i = 0; i < REGS; i++) {
            p->d[l][i] = static_cast<float>(l * 100 - i * 31);
        }
    }
    p->a = descriptor(1, 32, 16, 1024);
    p->b = descriptor(1, 8192, registers ? 4096 : 16, 1024);
    const auto before = std::make_unique<Product>(*p);
    sm90().run(kernel, *p);
    for (const Row &r : figure) {
        for (int j = 0; j < 32; j++) {
            if (j >= 16 && j < 24) {
                continue;
            }
            const Place at = place(j < 8 ? r.d0 : j < 16 ? r.d8 : r.d24, j % 8);
            int sum = static_cast<int>(before->d[at.lane][at.index]);
            for (int k = 0; k < 16; k++) {
                sum += a_of(r.row, k) * b_of(k, j);
            }
            INFO(kernel << " row " << r.row << " column " << j);
            CHECK(p->d[at.lane][at.index] == static_cast<float>(sum));
        }
        for (int k = 0; k < 16 && registers; k++) {
            const Place at = place(r.a, k);
            const uint32_t x = p->registers[at.lane][at.index / 2] >> 16 * (at.index % 2) & 0xffff;
            CHECK(x == encode(bf16, static_cast<float>(a_of(r.row, k))));
        }
    }
    // The last columns: lane 127 has row 63's.
    int sum = static_cast<int>(before->d[127][n / 2 - 1]);
    for (int k = 0; k < 16; k++) {
        sum += a_of(63, k) * b_of(k, n - 1);
    }
    CHECK(p->d[127][n / 2 - 1] == static_cast<float>(sum));
    CHECK((n == 256 || p->d[127][n / 2] == before->d[127][n / 2]));
}

TEST_CASE("wgmma: lanes hold what the figures show", "[sm90]") {
    NEEDS_CC();
    for (const char *options : {"async=late", "async=early", "order=random,async=random,seed=3"}) {
        const emu::Options set(options);
        check_product("ss_f16_32", 32, false, false);
        check_product("ss_bf16_80", 80, true, false);
        check_product("ss_f16_192", 192, false, false);
        check_product("rs_f16_32", 32, false, true);
        check_product("rs_bf16_64", 64, true, true);
        check_product("rs_f16_256", 256, false, true);
    }
}

TEST_CASE("wgmma: numbers", "[sm90]") {
    NEEDS_CC();
    const auto one = [](bool bf16, uint16_t a, uint16_t b, float c, int add = 1, int times = 1) {
        const auto p = std::make_unique<Product>(); // row 0, k 0 and k 0, column 0
        put(p->shared, 0, a);
        put(p->shared, 32768, b);
        p->d[0][0] = c;
        p->a = descriptor(1, 0, 16, 1024);
        p->b = descriptor(1, 32768, 16, 1024);
        p->add = add;
        p->times = times;
        sm90().run(bf16 ? "ss_bf16_80" : "ss_f16_32", *p);
        return p->d[0][0];
    };
    CHECK(one(false, 0x0001, 0x0001, 0) == 0x1p-48f); // subnormals are kept
    CHECK(one(false, 0x7bff, 0x7bff, 0) == 65504.0f * 65504.0f);
    CHECK(one(false, 0x0c00, 0x0e00, 1) == 1); // + 0.75 * 2^-23: rounded toward zero
    CHECK(one(false, 0x8c00, 0x0e00, 1) == 1 - 0x1p-23f);
    CHECK(one(false, 0x7c00, 0x3c00, 0) == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(one(false, 0x7c00, 0x0000, 0)));
    CHECK(one(true, 0x7f7f, 0x3f80, 0x1.fep127f) == std::numeric_limits<float>::infinity());
    CHECK(one(true, 0x3f81, 0x3f81, -1) == 0x1p-6f + 0x1p-14f);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(one(true, 0x4000, 0x4040, nan, 0) == 6); // d is not read
    CHECK(one(true, 0x4000, 0x4040, 1, 1, 3) == 19);
    CHECK(one(true, 0x4000, 0x4040, 1, 0, 3) == 6);
}

// Rows of 64 of m, of n, one for each k: a at 0, b at 32768.
static void check_turned(const char *kernel, uint32_t n, bool bf16) {
    const auto p = std::make_unique<Product>();
    std::vector<float> a(64 * 16), b(64 * 16);
    const auto at = [](uint32_t k, uint32_t i) {
        return k / 8 * 1024 + k % 8 * 128 + ((i / 8) ^ (k % 8)) * 16 + i % 8 * 2;
    };
    for (uint32_t i = 0; i < 64; i++) {
        for (uint32_t k = 0; k < 16; k++) {
            b[i * 16 + k] = static_cast<float>(i * 3 % 31 + k * 11 % 17);
            a[i * 16 + k] = static_cast<float>(i * 7 % 29 + k * 5 % 13) - 20;
            put(p->shared, at(k, i), encode(bf16, a[i * 16 + k]));
            put(p->shared, 32768 + at(k, i), encode(bf16, b[i * 16 + k]));
        }
    }
    p->a = descriptor(1, 0, 16, 1024);
    p->b = descriptor(1, 32768, 8192, 1024);
    p->d[0][0] = 99; // not read
    p->add = 0;
    sm90().run(kernel, *p);
    for (uint32_t i = 0; i < 64; i++) {
        for (uint32_t j = 0; j < n; j++) {
            float sum = 0;
            for (uint32_t k = 0; k < 16; k++) {
                sum += a[i * 16 + k] * b[j * 16 + k];
            }
            const float d =
                p->d[i / 16 * 32 + i % 8 * 4 + j % 8 / 2][j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
            REQUIRE(d == sum);
        }
    }
}

TEST_CASE("wgmma: m and n in the rows", "[sm90]") {
    NEEDS_CC();
    check_turned("tt_f16_32", 32, false);
    check_turned("tt_bf16_64", 64, true);
}

// Section 9.7.15.5.1.2, "Strides" and the figures of canonical layouts: where row r (of N), k of an
// operand of 16 bits stands, worked out by hand. `across`: rows of n.
struct Where {
    uint64_t swizzle;
    bool across;
    uint32_t start, leading, stride, r, k, byte;
};
const Where wheres[] = {
    // 128 bytes, k in rows: 8 rows of 128 bytes a core, `stride` to the next, no leading.
    {1, false, 0, 16, 1024, 0, 0, 0},
    {1, false, 0, 16, 1024, 3, 9, 3 * 128 + (1 ^ 3) * 16 + 2},
    {1, false, 0, 16, 1024, 7, 15, 7 * 128 + (1 ^ 7) * 16 + 14},
    {1, false, 0, 16, 1024, 13, 0, 1024 + 5 * 128 + 5 * 16},
    {1, false, 96, 16, 1024, 5, 8, 5 * 128 + (7 ^ 5) * 16},
    {1, false, 2048, 16, 3072, 30, 1, 2048 + 3 * 3072 + 6 * 128 + 6 * 16 + 2},
    // 64 bytes.
    {2, false, 0, 16, 512, 2, 9, 2 * 64 + (1 ^ 1) * 16 + 2},
    {2, false, 32, 16, 512, 15, 8, 512 + 7 * 64 + (3 ^ 3) * 16},
    {2, false, 32, 16, 512, 4, 3, 4 * 64 + (2 ^ 2) * 16 + 6},
    // 32 bytes.
    {3, false, 0, 16, 256, 3, 0, 3 * 32},
    {3, false, 0, 16, 256, 4, 0, 4 * 32 + 16},
    {3, false, 0, 16, 256, 17, 10, 2 * 256 + 32 + 16 + 4},
    // None: cores of 8 rows of 16 bytes; `leading` to the next 8 of k, `stride` to the next 8 rows.
    {0, false, 0, 128, 256, 5, 3, 5 * 16 + 6},
    {0, false, 16, 512, 1024, 20, 12, 16 + 2 * 1024 + 512 + 4 * 16 + 8},
    // 128 bytes, n in rows: a core is 8 of k by 64 of n.
    {1, true, 0, 4096, 1024, 0, 0, 0},
    {1, true, 0, 4096, 1024, 19, 3, 3 * 128 + (2 ^ 3) * 16 + 6},
    {1, true, 2048, 4096, 1024, 31, 14, 2048 + 1024 + 6 * 128 + (3 ^ 6) * 16 + 14},
    // 64 bytes: 32 of n.
    {2, true, 0, 4096, 512, 17, 10, 512 + 2 * 64 + (2 ^ 1) * 16 + 2},
    // 32 bytes: 16 of n.
    {3, true, 0, 4096, 256, 25, 13, 4096 + 256 + 5 * 32 + (1 ^ 1) * 16 + 2},
    {3, true, 0, 4096, 256, 8, 2, 2 * 32 + 16},
    // None: cores of 8 of k by 8 of n; `leading` to the next 8 of k, `stride` to the next 8 of n.
    {0, true, 0, 2048, 128, 11, 9, 2048 + 128 + 16 + 6},
};

TEST_CASE("wgmma: descriptors and swizzles", "[sm90]") {
    NEEDS_CC();
    for (const Where &w : wheres) {
        const auto p = std::make_unique<Product>();
        INFO("swizzle " << w.swizzle << " across " << w.across << " r " << w.r << " k " << w.k);
        put(p->shared, w.byte, 0x3c00);
        p->a = descriptor(1, 32768, 16, 1024);
        p->b = descriptor(w.swizzle, w.start, w.leading, w.stride);
        for (uint32_t i = 0; i < 64; i++) {
            for (uint32_t k = 0; k < 16; k++) {
                const uint16_t x = encode(false, static_cast<float>(i * 16 + k + 1));
                put(p->shared, 32768 + swizzled(i, 2 * k), x);
                p->registers[i / 16 * 32 + i % 8 * 4 + k % 8 / 2][i % 16 / 8 + k / 8 * 2] |=
                    static_cast<uint32_t>(x) << 16 * (k % 2);
            }
        }
        sm90().run(w.across ? "rs_f16_32" : "ss_f16_32", *p);
        for (uint32_t i = 0; i < 64; i++) {
            for (uint32_t j = 0; j < 32; j++) {
                const float d =
                    p->d[i / 16 * 32 + i % 8 * 4 + j % 8 / 2][j / 8 * 4 + i % 16 / 8 * 2 + j % 2];
                REQUIRE(d == (j == w.r ? static_cast<float>(i * 16 + w.k + 1) : 0));
            }
        }
    }
    uint32_t at[2 * WGMMA_N];
    const uint64_t good = descriptor(1, 0, 16, 1024);
    for (const uint64_t wrong :
         {descriptor(1, 128, 16, 1024), descriptor(2, 256, 16, 512), descriptor(3, 128, 16, 256),
          good | uint64_t{1} << 49, good | uint64_t{1} << 14}) {
        CHECK(attn__ptx_chunks(at, wrong, 64, 0) != nullptr);
    }
}

TEST_CASE("wgmma: what is counted", "[sm90]") {
    NEEDS_CC();
    const auto p = std::make_unique<Product>();
    p->a = descriptor(1, 0, 16, 1024);
    p->b = descriptor(1, 32768, 16, 1024);
    sm90().run("ss_f16_32", *p);
    const attn__emu_counts swizzle = sm90().chip.last();
    CHECK(swizzle.matrix_ops == 1);
    CHECK(swizzle.flops == 2 * 64 * 32 * 16);
    const uint64_t stores = SHARED / 4 / 32; // of the words, in one cycle each
    CHECK(swizzle.shared_access - stores == (64 + 32) / 8 * 2);
    CHECK(swizzle.shared_cycles == swizzle.shared_access);
    p->b = descriptor(0, 32768, 16, 1024); // rows of 16 bytes, 16 apart: no conflict either
    sm90().run("ss_f16_32", *p);
    CHECK(sm90().chip.last().shared_cycles == swizzle.shared_cycles);
}

// -- mbarriers, barriers by number, registers ----------------------------------------------------

// Thread 0 does what the table says and notes what try_wait gives; the others are not there.
TEST_CASE("mbarrier: phases, 9.7.13.15.5", "[sm90]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_90a");
    emu::Code code(chip, R"(
#include "isa/ptx_sm90.h"
DEV void phases_body(const args *p) { /* n arrivals a phase; letters of in, answers to out */
    if (thread_id() == 0) {
        mbarrier_init(0, p->n);
        mbarrier_init_fence();
        u64 out = p->out;
        for (u64 at = p->in; load_u8(at); at++) {
            switch (load_u8(at)) {
            case 'a': mbarrier_arrive(0); break;
            case 'e': mbarrier_expect(0, 0); break;
            case '0': store_u16(out, (u32)mbarrier_try_wait(0, 0)), out += 2; break;
            case '1': store_u16(out, (u32)mbarrier_try_wait(0, 1)), out += 2; break;
            }
        }
    }
}
ATTN_ENTRY(phases, phases_body, args)
DEV void later_body(const args *p) { /* what warp 0 is told while warp 1 has not come, and then */
    if (thread_id() == 0) {
        mbarrier_init(0, 1);
        mbarrier_init_fence();
    }
    block_sync();
    if (thread_id() == 0) {
        store_u32(p->out, (u32)mbarrier_try_wait(0, 0) + 10);
        store_u32(p->out + 4, (u32)mbarrier_try_wait(0, 0) + 10);
    }
    if (thread_id() == 32) {
        mbarrier_arrive(0);
    }
}
ATTN_ENTRY(later, later_body, args)
)");
    struct Want {
        int count;
        const char *acts, *answers; // those that are 0 wait for ever
    };
    for (const Want &w :
         {Want{1, "1", "1"}, Want{1, "a0", "1"}, Want{1, "aa1", "1"}, Want{3, "aaa0", "1"},
          Want{3, "aa1", "1"}, Want{2, "aeea1", "1"}, Want{1, "0", "0"}, Want{1, "a1", "0"},
          Want{2, "a0", "0"}, Want{1, "aa0", "0"}, Want{2, "1a1a0", "111"}}) {
        std::vector<char> acts(w.acts, w.acts + std::strlen(w.acts) + 1);
        std::vector<uint16_t> out(8, 7);
        INFO(w.count << " " << w.acts);
        const int status =
            code.launch("phases", {emu::Code::at(acts), emu::Code::at(out), w.count}, 1, 32, 64);
        if (*w.answers == '0') {
            CHECK(status == ATTN_DRIVER);
            CHECK(std::strstr(attn_error(), "thread 0 waits at mbarrier 0, phase ") != nullptr);
            CHECK(std::strstr(attn_error(), "for ever") != nullptr);
        } else {
            CHECK(status == ATTN_OK);
            for (size_t i = 0; i < std::strlen(w.answers); i++) {
                CHECK(out[i] == w.answers[i] - '0');
            }
        }
    }
    std::vector<uint32_t> out(2);
    REQUIRE(code.launch("later", {0, emu::Code::at(out), 0}, 1, 64, 64) == ATTN_OK);
    CHECK(out == std::vector<uint32_t>{10, 11});
}

// -- Boxes ---------------------------------------------------------------------------------------

// A tensor of 3 x 5 x 7 rows of 100 numbers, of which a box of 64 x 2 x 3 x 1 comes to byte 1024.
TEST_CASE("tensor_load: rows, swizzle, what is outside, 5.5", "[sm90]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_90a");
    emu::Code code(chip, R"(
#include "isa/ptx_sm90.h"
typedef struct box { tensor_map map; i32 c[4]; } box;
DEV void load_body(const args *p) {
    const box *const b = (const box *)p->in;
    if (thread_id() == 0) {
        mbarrier_init(0, 1);
        mbarrier_init_fence();
        tensor_prefetch(&b->map);
        mbarrier_expect(0, p->n);
        tensor_load_4d(1024, &b->map, 0, b->c[0], b->c[1], b->c[2], b->c[3]);
    }
    block_sync();
    mbarrier_wait(0, 0);
    for (int i = thread_id(); i < 6 * 32; i += 32) {
        store_u32(p->out + 4 * i, shared_load_u32(1024 + 4 * i));
    }
}
ATTN_ENTRY(load, load_body, args)
DEV void alone_body(const args *p) {
    const box *const b = (const box *)p->in;
    if (thread_id() == 0) {
        mbarrier_init(0, 1);
        mbarrier_init_fence();
    }
    block_sync();
    for (u32 i = 0; i < 3 && thread_id() == 0; i++) {
        mbarrier_expect(0, p->n);
        tensor_load_4d(1024, &b->map, 0, b->c[0], b->c[1], b->c[2], (i32)i);
        mbarrier_wait(0, i & 1);
        store_u32(p->out + 4 * i, shared_load_u32(1024));
    }
}
ATTN_ENTRY(alone, alone_body, args)
)");
    struct alignas(64) Box {
        uint64_t word[16];
        int32_t c[4];
    } box{};
    alignas(16) static uint16_t data[7 * 5 * 3 * 104];
    for (size_t i = 0; i < sizeof data / 2; i++) {
        data[i] = static_cast<uint16_t>(i % 104 < 100 ? i + 1 : 0xffff);
    }
    const attn__boxes what = {ATTN_F16, data, {100, 3, 5, 7}, {208, 624, 3120}, {64, 2, 3, 1}};
    REQUIRE(attn__emu.describe(chip.chip, &what, box.word) == 1);
    for (const std::array<int, 4> &c : {std::array<int, 4>{0, 0, 0, 0},
                                        {0, 1, 2, 6},
                                        {64, 2, 3, 0},
                                        {-8, -1, -2, 1},
                                        {8, 0, 4, 7}}) {
        std::vector<uint16_t> out(6 * 64);
        std::copy(c.begin(), c.end(), box.c);
        for (const char *options : {"async=late", "async=early"}) {
            const emu::Options set(options);
            REQUIRE(code.launch("load", {reinterpret_cast<uint64_t>(&box), emu::Code::at(out), 768},
                                1, 32, 2048) == ATTN_OK);
            for (int row = 0; row < 6; row++) {
                for (int i = 0; i < 64; i++) {
                    const int at[4] = {c[0] + i, c[1] + row % 2, c[2] + row / 2, c[3]};
                    const bool in = at[0] >= 0 && at[0] < 100 && at[1] >= 0 && at[1] < 3 &&
                                    at[2] >= 0 && at[2] < 5 && at[3] < 7;
                    const int want = in ? at[0] + 104 * (at[1] + 3 * (at[2] + 5 * at[3])) + 1 : 0;
                    const int chunk = i / 8 ^ row % 8;
                    REQUIRE(out[static_cast<size_t>(row * 64 + chunk * 8 + i % 8)] == want);
                }
            }
        }
    }
    CHECK(chip.last().load_bytes == 0); // {8, 0, 4, 7} is all outside
    // A copy that lands for one thread alone, all others having ended: it goes on where it waits.
    std::fill(box.c, box.c + 4, 0);
    for (const char *options : {"async=late", "async=random,order=random", "order=descending"}) {
        const emu::Options set(options);
        std::vector<uint32_t> out(3);
        REQUIRE(code.launch("alone", {reinterpret_cast<uint64_t>(&box), emu::Code::at(out), 768}, 1,
                            32, 2048) == ATTN_OK);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK(out[i] == 0x20001 + 104 * 15 * 0x10001 * i); // elements 1 and 2 of image i
        }
    }
    const auto describes = [&](attn__boxes b) {
        uint64_t word[16];
        return attn__emu.describe(chip.chip, &b, word);
    };
    attn__boxes wrong = what;
    wrong.data = data + 4;
    CHECK(describes(wrong) == 0);
    wrong = what;
    wrong.st[1] = 632;
    CHECK(describes(wrong) == 0);
    wrong.n[2] = 1;
    CHECK(describes(wrong) == 1);
    wrong.box[1] = 257;
    CHECK(describes(wrong) == 0);
    wrong = what;
    wrong.box[0] = 32;
    CHECK(describes(wrong) == 0);
    emu::Chip older("emu:sm_80");
    CHECK(attn__emu.describe(older.chip, &what, box.word) == 0);
}

TEST_CASE("wgmma: speed", "[.speed]") {
    NEEDS_CC();
    const auto p = std::make_unique<Product>();
    p->a = descriptor(1, 0, 16, 1024);
    p->b = descriptor(1, 32768, 16, 1024);
    p->times = 60;
    for (const char *kernel : {"ss_bf16_128", "rs_bf16_128"}) {
        double flops = 0;
        const std::clock_t begin = std::clock();
        for (int i = 0; i < 100; i++) {
            sm90().run(kernel, *p);
            flops += static_cast<double>(sm90().chip.last().flops);
        }
        const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        std::printf("%s: %.2f GFLOP/s\n", kernel, flops / took * 1e-9);
    }
}
