// tile_test.cc: the tile tables of the CPU engine one by one: all that this processor can run.
//
// What the engine makes of them is tested in cpu_test.cc.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

extern "C" {
#include "cpu_tile.h"
}

namespace {
using namespace host;
const float inf = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();
} // namespace

namespace {

// What the loops of a table make of the same numbers.
std::vector<std::vector<float>>
table_results(const attn__tile_ops &ops, const std::vector<float> &a, const std::vector<float> &b) {
    std::vector<std::vector<float>> out;
    for (int n = 16; n <= 128; n += 16) {
        for (const int m : {1, 3, 64}) {
            std::vector<float> c(64 * 128, 0.5f);
            const attn__right rows{b.data(), 128, ATTN__LANES};
            const attn__right panels{b.data(), ATTN__LANES, 170 * ATTN__LANES};
            ops.mul(c.data(), 128, {a.data(), 170, 1}, rows, m, n, 170 - m,
                    n % 32 == 0 ? MUL_ADD : MUL_SET);
            ops.mul(c.data(), 128, {a.data(), 1, 64}, panels, m, n, 100 + m, MUL_ADD);
            ops.mul(c.data(), 128, {a.data(), 170, 1}, panels, m, n, 7, MUL_CONTINUE);
            out.push_back(c);
        }
    }
    for (int n = 1; n <= 128; n++) {
        const size_t shift = static_cast<size_t>(n);
        const float *const score = &a[shift * 16], *const dp = &b[shift];
        const float by = n % 7 ? 1.0f : 0.25f;
        std::vector<float> p(128), state{0.25f, 3, 0, 0};
        std::vector<int32_t> on(128), seen(128);
        for (size_t j = 0; j < 128; j++) {
            on[j] = (j * 7 + shift) % 5 ? 1 : 0;
        }
        const int begin = n % 5 ? 0 : std::min(n - 1, 11);
        state[3] = static_cast<float>(ops.softmax(p.data(), score, by, n % 2 ? on.data() : nullptr,
                                                  begin, n, &state[0], &state[1], &state[2],
                                                  n % 3 ? seen.data() : nullptr));
        out.push_back(p);
        out.push_back(state);
        const attn__grad_row row = {1.5f,
                                    0.125f,
                                    by,
                                    0.7f,
                                    n % 3 ? &b[5] : nullptr,
                                    n % 4 ? &b[200] : nullptr,
                                    n % 5 ? &b[400] : nullptr};
        std::vector<float> g(128), pw(128), gd(128);
        ops.grad(pw.data(), gd.data(), g.data(), score, dp, on.data(), begin, n, &row, seen.data());
        for (const auto &x : {pw, gd, g}) {
            out.emplace_back(x.begin(), x.begin() + n);
        }
    }
    return out;
}

} // namespace

TEST_CASE("tile: every tile table gives nearly the same, and a row whatever its neighbours") {
    std::vector<float> a(64 * 170), b(170 * 128);
    for (size_t i = 0; i < a.size(); i++) {
        a[i] = static_cast<float>(noise(i));
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = static_cast<float>(noise(i + 77777));
    }
    std::vector<std::vector<float>> first;
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        CAPTURE(ops.name);
        const auto out = table_results(ops, a, b);
        REQUIRE((first.empty() || first.size() == out.size()));
        for (size_t i = 0; i < first.size(); i++) {
            for (size_t e = 0; e < out[i].size(); e++) {
                const float most = std::max(1.0f, std::fabs(first[i][e]));
                REQUIRE(std::fabs(out[i][e] - first[i][e]) <= 1e-5f * most);
            }
        }
        first = first.empty() ? out : first;
        std::vector<float> whole(64 * 128), row(13 * 128);
        const attn__right right{b.data(), 128, ATTN__LANES};
        ops.mul(whole.data(), 128, {a.data(), 170, 1}, right, 63, 112, 170, MUL_SET);
        for (int m = 1; m <= 13; m++) {
            for (size_t i = 0; i + static_cast<size_t>(m) <= 63; i++) {
                std::fill(row.begin(), row.end(), 0.0f);
                for (const int from : {0, 100}) { /* in two goes */
                    const attn__right rest{&b[static_cast<size_t>(from) * 128], 128, ATTN__LANES};
                    const float *const left = &a[i * 170 + static_cast<size_t>(from)];
                    ops.mul(row.data(), 128, {left, 170, 1}, rest, m, 112, from ? 70 : 100,
                            MUL_CONTINUE);
                }
                for (size_t e = 0; e < static_cast<size_t>(m); e++) {
                    REQUIRE(memcmp(&row[e * 128], &whole[(i + e) * 128], 112 * 4) == 0);
                }
            }
        }
    }
    CHECK_FALSE(first.empty());
}

TEST_CASE("tile: probabilities are 2^x within their bound, the largest exactly 1") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        double worst = 0;
        bool exact = true;
        for (int step = 0; step < 1 << 14; step++) {
            std::vector<float> s(128), p(128);
            float m = -inf, l = 0, corr = 0;
            for (size_t i = 1; i < s.size(); i++) {
                s[i] = -105 * (static_cast<float>(step) + static_cast<float>(i) / 128) / (1 << 14);
            }
            exact = ops.softmax(p.data(), s.data(), 1, nullptr, 0, 128, &m, &l, &corr, nullptr) ==
                        ROW_VISIBLE &&
                    p[0] == 1 && m == 0 && corr == 0 && exact;
            for (size_t i = 0; i < s.size(); i++) {
                const double want = std::exp2(static_cast<double>(s[i] * 1.44269502f));
                const double last_place = std::ldexp(1, -149) * 0.5;
                worst = std::max(worst, (std::fabs(p[i] - want) - last_place) / want);
            }
        }
        CAPTURE(ops.name, worst);
        CHECK(exact);
        CHECK(worst < 1.8e-7);
        CHECK(worst > 5e-8);
    }
}

TEST_CASE("tile: softmax of many rows has the bits of softmax of each") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        for (const int rows : {1, 7, 16}) {
            for (const int n : {16, 48, 128}) {
                CAPTURE(ops.name, rows, n);
                std::vector<float> s(16 * 144), by(16), m(16, -inf), l(16), corr(16);
                std::vector<uint8_t> nan(16);
                for (size_t i = 0; i < s.size(); i++) {
                    s[i] = i % 11 ? 9 * static_cast<float>(noise(i)) : -inf;
                }
                for (size_t i = 0; i < 16; i++) {
                    by[i] = 0.5f + 0.1f * static_cast<float>(i);
                    m[i] = i % 3 ? 4 * static_cast<float>(noise(i)) : -inf;
                    l[i] = i % 3 ? 2.5f : 0;
                }
                if (rows == 7) {
                    s[5 * 144 + 3] = not_a_number;
                }
                std::vector<float> want = s, want_m = m, want_l = l, want_corr(16, 1), p = s;
                for (size_t i = 0; i < static_cast<size_t>(rows); i++) {
                    float *const row = &want[i * 144];
                    const int state = ops.softmax(row, row, by[i], nullptr, 0, n, &want_m[i],
                                                  &want_l[i], &want_corr[i], nullptr);
                    CHECK((state == ROW_NAN) == (rows == 7 && i == 5));
                }
                REQUIRE(ops.softmax_rows(p.data(), 144, FORM_F32, p.data(), 144, rows, n, by.data(),
                                         m.data(), l.data(), corr.data(), nan.data(), nullptr));
                CHECK(nan[5] == (rows == 7));
                for (size_t i = 0; i < static_cast<size_t>(rows); i++) {
                    CHECK(memcmp(&p[i * 144], &want[i * 144], static_cast<size_t>(n) * 4) == 0);
                    CHECK(m[i] == want_m[i]);
                    CHECK(l[i] == want_l[i]);
                    CHECK(corr[i] == want_corr[i]);
                }
                if (ops.narrow) {
                    std::vector<float> to(144);
                    ops.narrow(to.data(), want.data(), n);
                    std::fill(m.begin(), m.end(), want_m[0]);
                    REQUIRE(ops.softmax_rows(s.data(), 144, FORM_PAIRS, s.data(), 144, 1, n,
                                             by.data(), m.data(), l.data(), corr.data(), nan.data(),
                                             nullptr));
                    CHECK(memcmp(s.data(), to.data(), static_cast<size_t>(n) * 2) == 0);
                }
                s[2] = inf;
                p = s;
                CHECK_FALSE(ops.softmax_rows(s.data(), 144, FORM_F32, s.data(), 144, rows, n,
                                             by.data(), m.data(), l.data(), corr.data(), nan.data(),
                                             nullptr));
                CHECK(memcmp(s.data(), p.data(), s.size() * 4) == 0);
            }
        }
    }
}

namespace {

std::vector<float> noise_of_bf16(size_t n, uint64_t seed) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) {
        x[i] = attn__bf16_to_f32(attn__f32_to_bf16(static_cast<float>(noise(i + seed))));
    }
    return x;
}

// Two numbers as bf16 in a float's place.
float pair_of(double first, double second) {
    const uint16_t two[] = {attn__f32_to_bf16(static_cast<float>(first)),
                            attn__f32_to_bf16(static_cast<float>(second))};
    float x;
    memcpy(&x, two, sizeof x);
    return x;
}

// Rows of n numbers as bf16, in half as many places.
std::vector<float> narrowed(const attn__tile_ops &ops, const std::vector<float> &x, int n) {
    std::vector<float> to(x.size() / 2);
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(n)) {
        ops.narrow(&to[at / 2], &x[at], n);
    }
    return to;
}

// a[m][k] b[k][n] in all ways that mul_pairs has, beside the same products of f32.
void check_pairs(const attn__tile_ops &ops, int m, int n, int k) {
    CAPTURE(ops.name, m, n, k);
    const int k_up = (k + 15) / 16 * 16, columns = (m + 15) / 16 * 16; // whole vectors
    std::vector<float> a = noise_of_bf16(static_cast<size_t>(columns * k_up), 0);
    std::vector<float> b = noise_of_bf16(static_cast<size_t>(k_up * n), 999), at(a.size());
    for (size_t l = 0; l < static_cast<size_t>(k_up); l++) {
        for (size_t i = 0; i < static_cast<size_t>(columns); i++) {
            at[l * static_cast<size_t>(columns) + i] = a[i * static_cast<size_t>(k_up) + l];
        }
    }
    const std::vector<float> rows = narrowed(ops, a, k_up), cols = narrowed(ops, at, columns);
    const std::vector<float> b_rows = narrowed(ops, b, n);
    std::vector<float> b_pairs(static_cast<size_t>(k_up / 2 * n));
    std::vector<float> turned(static_cast<size_t>(k_up / 2 * columns));
    for (int l = 0; l < k_up; l += 2) {
        const size_t half = static_cast<size_t>(l / 2);
        ops.zip(&b_pairs[half * static_cast<size_t>(n)], &b_rows[static_cast<size_t>(l * n / 2)],
                &b_rows[static_cast<size_t>((l + 1) * n / 2)], n, ATTN__LANES);
        ops.zip(&turned[half * static_cast<size_t>(columns)],
                &cols[static_cast<size_t>(l * columns / 2)],
                &cols[static_cast<size_t>((l + 1) * columns / 2)], columns, ATTN__LANES);
    }
    if (ops.begin) {
        ops.begin();
    }
    const attn__left left{rows.data(), k_up / 2, 1}, left_turned{turned.data(), 1, columns};
    const attn__right right{b_pairs.data(), n, ATTN__LANES};
    const size_t size = static_cast<size_t>(m * n);
    for (const attn__mul how : {MUL_SET, MUL_ADD, MUL_CONTINUE}) {
        std::vector<float> want(size + 8, 0.75f), got = want, again = want, row(want);
        ops.mul(want.data(), n, {a.data(), k_up, 1}, {b.data(), n, ATTN__LANES}, m, n, k, how);
        ops.mul_pairs(got.data(), n, left, right, m, n, k / 2, how);
        ops.mul_pairs(again.data(), n, left_turned, right, m, n, k / 2, how);
        for (size_t e = 0; e < want.size(); e++) {
            REQUIRE(std::fabs(got[e] - want[e]) <= 1e-5f * (1 + std::fabs(want[e])));
        }
        CHECK(memcmp(got.data(), again.data(), got.size() * 4) == 0);
        const attn__left last{&rows[static_cast<size_t>((m - 1) * k_up / 2)], k_up / 2, 1};
        ops.mul_pairs(row.data(), n, last, right, 1, n, k / 2, how);
        CHECK(memcmp(row.data(), &got[size - static_cast<size_t>(n)], static_cast<size_t>(n) * 4) ==
              0);
    }
    if (ops.end) {
        ops.end();
    }
}

} // namespace

TEST_CASE("tile: products of pairs of bf16 are those of f32, a row whatever its neighbours") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        CAPTURE(ops.name);
        REQUIRE(!ops.mul_pairs == !ops.narrow);
        REQUIRE(!ops.mul_pairs == !ops.zip);
        if (!ops.mul_pairs) {
            continue;
        }
        for (const int m : {1, 7, 16, 33, 64, 128}) {
            for (const int n : {16, 48, 128}) {
                for (const int k : {2, 30, 32, 40, 128}) {
                    check_pairs(ops, m, n, k);
                }
            }
        }
        std::vector<float> rows(48), pairs(48);
        for (const uint16_t x : {0x7f80, 0xff80, 0x7fc0}) {
            memcpy(reinterpret_cast<char *>(rows.data()) + 2 * 5, &x, sizeof x);
            REQUIRE_FALSE(ops.zip(pairs.data(), &rows[0], &rows[24], 48, ATTN__LANES));
            REQUIRE_FALSE(ops.zip(pairs.data(), &rows[24], &rows[0], 48, ATTN__LANES));
        }
    }
}

TEST_CASE("tile: split products have f32's accuracy, and what is not tame is told") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        if (!ops.go_on) {
            continue;
        }
        const size_t m = 48, n = 80, k = 96; // 3 strips, 5 panels, 3 blocks
        std::vector<float> a(m * k), b(n * k), c(m * n, 1), a3(m * k / 2 * 3), b3(n * k / 2 * 3);
        for (size_t i = 0; i < a.size(); i++) {
            a[i] = std::ldexp(static_cast<float>(noise(i)), static_cast<int>(i % 5));
        }
        for (size_t i = 0; i < b.size(); i++) { // panels [n / 16][k][16]
            b[i] = static_cast<float>(noise(i + a.size()));
        }
        const auto split = [&](const std::vector<float> &x) {
            return ops.split_pairs(b3.data(), n * k / 2, 16, x.data(), x.data() + 16, 32,
                                   static_cast<int>(n * k / 32));
        };
        for (size_t i = 0; i < m; i++) {
            REQUIRE(ops.split_row(&a3[i * k / 2 * 3], k / 2, &a[i * k], k));
        }
        REQUIRE(split(b));
        attn__queue queue = {};
        attn__product &x = queue.product[0];
        x.c = reinterpret_cast<char *>(c.data());
        x.c_row = n * 4;
        x.a = reinterpret_cast<const char *>(a3.data());
        x.a_row = k * 6, x.a_block = 64, x.a_strip = 16 * x.a_row, x.a_part = k * 2;
        x.b = reinterpret_cast<const char *>(b3.data());
        x.b_row = 64, x.b_block = 16 * 64, x.b_panel = k / 2 * 64, x.b_part = n * k * 2;
        x.strips = 3, x.panels = 5, x.blocks = 3, x.split = 1;
        queue.n = 1;
        ops.begin();
        ops.go_on(&queue, 1);
        ops.end();
        double worst = 0;
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                double sum = 1, size = 1;
                for (size_t l = 0; l < k; l++) {
                    const double term = static_cast<double>(a[i * k + l]) *
                                        static_cast<double>(b[(j / 16 * k + l) * 16 + j % 16]);
                    sum += term;
                    size += std::fabs(term);
                }
                worst = std::max(worst, std::fabs(sum - c[i * n + j]) / size);
            }
        }
        CHECK(worst < 1.2e-7); // 2^-23
        for (const float wild : {inf, -not_a_number, 1e17f, -8e-25f}) {
            b[77] = wild;
            CHECK_FALSE(split(b));
            for (const size_t j : {5, 21, 37}) { // two vectors are split at a time, one is left
                std::vector<float> row(48, 1), to(72);
                CHECK(ops.split_row(to.data(), 24, row.data(), 48));
                row[j] = wild;
                CHECK_FALSE(ops.split_row(to.data(), 24, row.data(), 48));
            }
        }
        b[77] = -0.0f;
        CHECK(split(b));
    }
}

TEST_CASE("tile: products of few rows with rows where they lie have the bits of panels'") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        if (!ops.dots) {
            continue;
        }
        CAPTURE(ops.name);
        const int n = 112, most = 48, step = 3 * 64 + 2; // bytes from row to row: any number
        for (const int k : {16, 48}) {                   // pairs
            std::vector<char> b(static_cast<size_t>(n * step));
            std::vector<float> a(static_cast<size_t>(most * k)), bt(static_cast<size_t>(n * k));
            std::vector<float> turned(a.size());
            for (size_t i = 0; i < a.size(); i++) {
                a[i] = pair_of(noise(2 * i), noise(2 * i + 1));
            }
            for (int j = 0; j < n; j++) {
                for (int l = 0; l < k; l++) {
                    const size_t at = static_cast<size_t>(j * k + l) + 9999;
                    const float x = pair_of(noise(2 * at), noise(2 * at + 1));
                    memcpy(&b[static_cast<size_t>(j * step + l * 4)], &x, sizeof x);
                    bt[static_cast<size_t>((j / 16 * k + l) * 16 + j % 16)] = x;
                }
            }
            for (int i = 0; i < most; i += 16) {
                ops.transpose(&turned[static_cast<size_t>(i * k)],
                              reinterpret_cast<const char *>(&a[static_cast<size_t>(i * k)]), k * 4,
                              k, 0, nullptr);
            }
            ops.begin();
            for (const int m : {1, 4, 16, 17, 33}) {
                CAPTURE(k, m);
                std::vector<float> x(static_cast<size_t>(m * n)), y(x.size(), 7);
                ops.mul_pairs(x.data(), n, {a.data(), k, 1}, {bt.data(), 16, k * 16}, m, n, k,
                              MUL_SET);
                const attn__rows rows = {b.data(), step};
                ops.dots(y.data(), n, turned.data(), rows, rows, m, n, k);
                CHECK(memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0);
            }
            ops.end();
        }
        // Of v, whose rows are 64 keys.
        for (const int columns : {32, 48, 64, 80, 112, 128, 144, 160}) {
            const int keys = 64, row = 2 * columns + 6;
            std::vector<char> v(static_cast<size_t>(keys * row));
            std::vector<float> panels(static_cast<size_t>(keys / 2 * columns));
            std::vector<float> p(static_cast<size_t>(most * keys / 2));
            for (size_t i = 0; i < p.size(); i++) {
                p[i] = pair_of(noise(2 * i + 31), noise(2 * i + 32));
            }
            for (int j = 0; j < keys; j++) {
                for (int d = 0; d < columns; d++) {
                    const int panel = d / 16 * keys / 2 + j / 2;
                    const size_t pair = static_cast<size_t>(panel * 16 + d % 16);
                    const float x = pair_of(noise(static_cast<size_t>(j * columns + d)), 0);
                    memcpy(&v[static_cast<size_t>(j * row + d * 2)], &x, 2);
                    memcpy(reinterpret_cast<char *>(&panels[pair]) + j % 2 * 2, &x, 2);
                }
            }
            ops.begin();
            for (const int m : {1, 4, 16, 17, 33}) {
                CAPTURE(columns, m);
                std::vector<float> x(static_cast<size_t>(m * columns));
                for (size_t i = 0; i < x.size(); i++) {
                    x[i] = static_cast<float>(noise(i + 77));
                }
                std::vector<float> y(x);
                ops.mul_pairs(x.data(), columns, {p.data(), keys / 2, 1},
                              {panels.data(), 16, keys / 2 * 16}, m, columns, keys / 2, MUL_ADD);
                const attn__rows rows = {v.data(), row};
                ops.sums(y.data(), columns, {p.data(), keys / 2, 1}, rows, rows, m, columns,
                         keys / 2);
                CHECK(memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0);
            }
            ops.end();
        }
    }
}

TEST_CASE("tile: backward has no probabilities below 2^-126") {
    for (int table = 0; attn__tile_ops_at(table); table++) {
        const attn__tile_ops &ops = *attn__tile_ops_at(table);
        CAPTURE(ops.name);
        std::vector<float> s(16, -86), dp(16, 1), p(16), g(16);
        s[3] = -88;
        s[4] = -103;
        s[5] = -inf;
        s[6] = not_a_number;
        const attn__grad_row row = {0, 0, 1, 1, nullptr, nullptr, nullptr};
        ops.grad(p.data(), g.data(), nullptr, s.data(), dp.data(), nullptr, 0, 16, &row, nullptr);
        for (size_t j = 0; j < 16; j++) {
            CAPTURE(j);
            if (j == 6) {
                CHECK(std::isnan(p[j]));
                CHECK(std::isnan(g[j]));
            } else {
                CHECK((p[j] == 0) == (j >= 3 && j <= 5));
                CHECK((g[j] == 0) == (j >= 3 && j <= 5));
            }
        }
    }
}
