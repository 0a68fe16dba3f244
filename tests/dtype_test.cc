// dtype_test.cc: every conversion against double arithmetic that shares nothing with lib/dtype.c.
//
// A small float is decoded here by its definition with ldexp, and encoded by rint on multiples of
// the unit in the last place.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
extern "C" {
#include "attn_int.h"
}
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace {

enum Kind { IEEE, FN, FNUZ };
struct Format {
    int type, bits, m, bias;
    Kind kind;
    double largest;
};
const Format formats[] = {
    {ATTN_F16, 16, 10, 15, IEEE, 65504},    {ATTN_BF16, 16, 7, 127, IEEE, 0x1.fep127},
    {ATTN_E5M2, 8, 2, 15, IEEE, 57344},     {ATTN_E4M3FN, 8, 3, 7, FN, 448},
    {ATTN_E5M2FNUZ, 8, 2, 16, FNUZ, 57344}, {ATTN_E4M3FNUZ, 8, 3, 8, FNUZ, 240},
};
const double inf = std::numeric_limits<double>::infinity();

double value_of(const Format &f, unsigned x) {
    const unsigned low = (1u << (f.bits - 1)) - 1, mag = x & low;
    const int e = static_cast<int>(mag >> f.m), top = (1 << (f.bits - 1 - f.m)) - 1;
    const unsigned man = mag & ((1u << f.m) - 1);
    const double sign = x > low ? -1 : 1;
    if ((f.kind == IEEE && e == top && man) || (f.kind == FN && mag == low) ||
        (f.kind == FNUZ && x == low + 1)) {
        return std::nan("");
    }
    if (f.kind == IEEE && e == top) {
        return sign * inf;
    }
    return sign * (e ? std::ldexp(1 + std::ldexp(man, -f.m), e - f.bias)
                     : std::ldexp(man, 1 - f.bias - f.m));
}

// What x must become, rounded once: a multiple of the unit in the last place.
double rounded(const Format &f, double x) {
    if (std::isnan(x) || x == 0) {
        return f.kind == FNUZ && x == 0 ? 0.0 : x;
    }
    const double over = f.kind == IEEE ? inf : f.largest;
    double r = x;
    if (!std::isinf(x)) {
        const int e = std::max(std::ilogb(x), 1 - f.bias) - f.m;
        r = std::ldexp(std::nearbyint(std::ldexp(x, -e)), e);
    }
    r = std::fabs(r) > f.largest ? std::copysign(over, x) : r;
    return f.kind == FNUZ && r == 0 ? 0.0 : r;
}

unsigned bits_at(const void *p, int bits) {
    uint16_t u = 0;
    std::memcpy(&u, p, static_cast<size_t>(bits / 8));
    return u;
}

void same(double got, double want) {
    if (std::isnan(want)) {
        REQUIRE(std::isnan(got));
    } else {
        REQUIRE(got == want);
        REQUIRE(std::signbit(got) == std::signbit(want));
    }
}

// Stores x by attn__set and, where x is an f32, by attn__store_f32.
void check_store(const Format &f, double x) {
    CAPTURE(attn__type_name(f.type), x);
    uint16_t u = 0;
    attn__set(&u, f.type, x);
    same(value_of(f, bits_at(&u, f.bits)), rounded(f, x));
    const float single = static_cast<float>(x);
    if (static_cast<double>(single) == x || std::isnan(x)) {
        uint16_t w = 0;
        attn__store_f32(&w, f.type, 1, &single, 1);
        REQUIRE(w == u);
    }
}

} // namespace

TEST_CASE("types: names, sizes, codes") {
    REQUIRE(std::string(attn__type_name(ATTN_BF16)) == "bf16");
    REQUIRE(std::string(attn__type_name(ATTN_E4M3FNUZ)) == "e4m3fnuz");
    REQUIRE(std::string(attn__type_name(12345)) == "?");
    REQUIRE(attn__type_bytes(ATTN_F64) == 8);
    REQUIRE(attn__type_bytes(ATTN_BOOL) == 1);
    REQUIRE(attn__type_bytes(0) == 0);
    REQUIRE(ATTN_F32 == (2 | 32 << 8));
}

TEST_CASE("every small float decodes by its definition and comes back with its own bits") {
    for (const Format &f : formats) {
        const unsigned n = 1u << f.bits;
        std::vector<uint16_t> wide(n), back(n);
        std::vector<uint8_t> narrow(n), back8(n);
        for (unsigned x = 0; x < n; x++) {
            wide[x] = static_cast<uint16_t>(x);
            narrow[x] = static_cast<uint8_t>(x);
        }
        const void *from = f.bits == 8 ? static_cast<void *>(narrow.data()) : wide.data();
        void *to = f.bits == 8 ? static_cast<void *>(back8.data()) : back.data();
        std::vector<float> value(n);
        attn__load_f32(value.data(), from, f.type, n, 1);
        attn__store_f32(to, f.type, 1, value.data(), n);
        for (unsigned x = 0; x < n; x++) {
            CAPTURE(attn__type_name(f.type), x);
            same(static_cast<double>(value[x]), value_of(f, x));
            const uint16_t one = static_cast<uint16_t>(x);
            same(attn__get(&one, f.type), value_of(f, x));
            const unsigned got = f.bits == 8 ? back8[x] : back[x];
            if (std::isnan(value[x])) {
                REQUIRE(std::isnan(value_of(f, got)));
            } else {
                REQUIRE(got == x);
            }
        }
    }
}

TEST_CASE("every tie and its neighbours round once, to nearest even") {
    for (const Format &f : formats) {
        const unsigned n = 1u << (f.bits - 1);
        for (unsigned x = 0; x + 1 < n; x++) {
            const double a = value_of(f, x), b = value_of(f, x + 1);
            if (!std::isfinite(a) || !std::isfinite(b)) {
                continue;
            }
            const double tie = (a + b) / 2; // exact: one more bit than the format has
            for (const double y : {a, tie, std::nextafter(tie, -inf), std::nextafter(tie, inf),
                                   std::nextafter(a, inf), a + (b - a) / 4, b - (b - a) / 4}) {
                check_store(f, y);
                check_store(f, -y);
            }
            for (const float y : {std::nextafterf(static_cast<float>(tie), -1e38f),
                                  std::nextafterf(static_cast<float>(tie), 1e38f)}) {
                check_store(f, static_cast<double>(y));
            }
        }
    }
}

TEST_CASE("overflow, infinity, NaN and zeros") {
    for (const Format &f : formats) {
        const double ulp = std::ldexp(1, std::ilogb(f.largest) - f.m);
        for (const double x : {f.largest, f.largest + ulp / 4, f.largest + ulp / 2,
                               std::nextafter(f.largest + ulp / 2, 0), f.largest + ulp,
                               f.largest * 2, 1e300, inf, 0.0, 1e-300, std::nan("")}) {
            check_store(f, x);
            check_store(f, -x);
        }
    }
    uint16_t u = 0;
    attn__set(&u, ATTN_E4M3FN, 1e9);
    REQUIRE((u & 0xff) == 0x7e);
    attn__set(&u, ATTN_E4M3FNUZ, std::nan(""));
    REQUIRE((u & 0xff) == 0x80);
    attn__set(&u, ATTN_E4M3FNUZ, -0.0);
    REQUIRE((u & 0xff) == 0);
    REQUIRE(attn__f32_to_f16(65519.996f) == 0x7bff);
    REQUIRE(attn__f32_to_f16(65520.f) == 0x7c00);
    REQUIRE(attn__f32_to_bf16(std::numeric_limits<float>::max()) == 0x7f80);
}

TEST_CASE("f32 bit patterns over the whole range round as double arithmetic says") {
    uint32_t bits = 0;
    for (int n = 0; n < 200000; n++) {
        bits += 0x9e3779b9u; // visits the range evenly
        float x;
        std::memcpy(&x, &bits, sizeof x);
        const Format &f = formats[n % 6];
        check_store(f, static_cast<double>(x));
    }
}

TEST_CASE("a double is not rounded twice") {
    // Just above a tie of the format, but on the tie once rounded to f32.
    for (const Format &f : formats) {
        const double tie = 1 + std::ldexp(1, -f.m - 1);
        check_store(f, tie + std::ldexp(1, -50));
        check_store(f, tie - std::ldexp(1, -50));
        uint16_t u = 0;
        attn__set(&u, f.type, tie + std::ldexp(1, -50));
        REQUIRE(value_of(f, bits_at(&u, f.bits)) == 1 + std::ldexp(1, -f.m));
    }
}

TEST_CASE("f64, f32, integers and bool") {
    const double d = 0.1;
    double e = 0;
    attn__set(&e, ATTN_F64, d);
    REQUIRE(e == d);
    REQUIRE(attn__get(&e, ATTN_F64) == d);
    float f = 0;
    attn__set(&f, ATTN_F32, d);
    REQUIRE(f == 0.1f);
    const struct {
        double x;
        int32_t i;
        int u, b;
    } rows[] = {
        {2.5, 2, 2, 1},           {3.5, 4, 4, 1},
        {-2.5, -2, 0, 1},         {0, 0, 0, 0},
        {255.5, 256, 255, 1},     {254.5, 254, 254, 1},
        {-0.25, 0, 0, 1},         {-0.0, 0, 0, 0},
        {3e9, INT32_MAX, 255, 1}, {-3e9, INT32_MIN, 0, 1},
        {inf, INT32_MAX, 255, 1}, {-inf, INT32_MIN, 0, 1},
        {std::nan(""), 0, 0, 1},
    };
    for (const auto &row : rows) {
        CAPTURE(row.x);
        const float x = static_cast<float>(row.x);
        int32_t i = 7, j = 7;
        uint8_t u = 7, b = 7;
        attn__set(&i, ATTN_I32, row.x);
        attn__store_f32(&j, ATTN_I32, 1, &x, 1);
        REQUIRE(i == row.i);
        REQUIRE(j == row.i);
        attn__set(&u, ATTN_U8, row.x);
        REQUIRE(u == row.u);
        attn__set(&b, ATTN_BOOL, row.x);
        REQUIRE(b == row.b);
    }
    const int32_t big = 16777217;
    REQUIRE(attn__get(&big, ATTN_I32) == 16777217);
    const uint8_t two = 2;
    REQUIRE(attn__get(&two, ATTN_BOOL) == 1);
    REQUIRE(attn__get(&two, ATTN_U8) == 2);
}

TEST_CASE("steps of any sign, at any address") {
    std::vector<uint8_t> memory(64);
    const float x[4] = {1, -2, 3, 0.5f};
    attn__store_f32(memory.data() + 1 + 18, ATTN_F16, -3, x, 4);
    float y[4] = {};
    attn__load_f32(y, memory.data() + 1 + 18, ATTN_F16, 4, -3);
    for (int i = 0; i < 4; i++) {
        REQUIRE(y[i] == x[i]);
        REQUIRE(attn__get(memory.data() + 1 + 18 - 6 * i, ATTN_F16) == static_cast<double>(x[i]));
    }
    attn__load_f32(y, memory.data() + 1 + 18, ATTN_F16, 4, 0);
    REQUIRE(y[3] == 1);
}
