// grad_test.cc: symbolic derivatives against central differences of the double oracle, and what
// must be 0 where a select chose so.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
extern "C" {
#include "expr.h"
}
#include "variant_handle.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using random_expr::graph;
using random_expr::rng;
using random_expr::text_of;

// A variant and its derivatives.
struct adjoint {
    random_expr::variant of;
    attn__adjoint *a = nullptr;
    explicit adjoint(const char *text) : of(text) {
        REQUIRE(attn__adjoint_new(of.v, &a) == ATTN_OK);
    }
    ~adjoint() { attn__adjoint_free(a); }
    adjoint(const adjoint &) = delete;
};

double eval(const attn_graph *g, int root, double s, const attn__env &env,
            const std::vector<attn__bound> &bound) {
    std::vector<attn__val> val((size_t)root + 1);
    attn__eval(g, nullptr, root, s, &env, bound.data(), val.data());
    return val[(size_t)root].f;
}

bool near(double x, double y, double tolerance = 1e-3) {
    return std::fabs(x - y) < tolerance * (1 + std::fabs(y));
}

// The slope of f at 0 by differences, if two step sizes and both sides agree on it.
template <class F> bool slope(F f, double h, double *result) {
    const double middle = f(0), right = f(h), left = f(-h), r2 = f(h / 2), l2 = f(-h / 2);
    const double wide = (right - left) / (2 * h), narrow = (r2 - l2) / h;
    const double bend = (right - middle) / h - (middle - left) / h;
    *result = (4 * narrow - wide) / 3;
    const double size = 1 + std::fabs(*result);
    return std::isfinite(*result) && std::fabs(middle) < 1e6 * size &&
           std::fabs(wide - narrow) < 1e-4 * size && std::fabs(bend) < 1e-2 * size;
}

// Values as a graph's symbols, made by hand: one f32 tensor x[4] or parameters.
std::vector<attn__bound> parameters(const attn_graph *g, const std::vector<float> &numbers) {
    std::vector<attn__bound> bound((size_t)g->n_symbols);
    for (size_t i = 0; i < bound.size(); i++) {
        memset(&bound[i], 0, sizeof bound[i]);
        bound[i].type = ATTN_F32;
        bound[i].f = i < numbers.size() ? numbers[i] : 0;
    }
    return bound;
}

double ds_at(const char *text, double s, const std::vector<float> &numbers = {}) {
    const adjoint x(text);
    attn__env env;
    memset(&env, 0, sizeof env);
    return eval(&x.a->graph, x.a->ds, s, env, parameters(&x.a->graph, numbers));
}

} // namespace

TEST_CASE("derivatives of random expressions by s agree with central differences") {
    int compared = 0, moving = 0, singular = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        graph x;
        x.g.no_fold = (int)(seed & 1);
        random_expr::options o;
        o.wild = false;
        o.smooth = true;
        random_expr::builder build(&x.g, seed, o);
        const int root = build.node(VT_F32, 5);
        if (root < 0) {
            continue;
        }
        const int s_leaf = attn__leaf(&x.g, LEAF_s), d = attn__derivative(&x.g, root, s_leaf);
        REQUIRE(d >= 0);
        REQUIRE(attn__verify(&x.g) == ATTN_OK);
        const random_expr::values values(&x.g, seed, false);
        rng r{seed};
        for (int sample = 0; sample < 6; sample++) {
            const attn__env env = random_expr::environment(r);
            const double s = 4 * r.uniform() - 2;
            double want;
            const auto f = [&](double h) { return eval(&x.g, root, s + h, env, values.bound); };
            if (!slope(f, 1e-4, &want)) {
                continue; // a kink, a jump or no finite value
            }
            const double got = eval(&x.g, d, s, env, values.bound);
            compared++;
            moving += std::fabs(want) > 1e-9;
            if (std::isnan(got)) { // sqrt(s % s), pow(1, sqrt(-1)): flat, through a singular point
                singular++;
                continue;
            }
            if (!near(got, want)) {
                FAIL("seed " << seed << " s " << s << ": d " << text_of(&x.g, root) << " = "
                             << text_of(&x.g, d) << " gives " << got << ", differences " << want);
            }
        }
    }
    CHECK(compared > 5000);
    CHECK(moving > 1000);
    CHECK(singular * 200 < compared);
}

TEST_CASE("adjoints: every element and parameter that a score reads") {
    int compared = 0, moving = 0, singular = 0;
    for (uint64_t seed = 1; seed <= 2500; seed++) {
        graph x;
        random_expr::options o;
        o.wild = false;
        o.smooth = true;
        random_expr::builder build(&x.g, seed, o);
        // A score that reads at least one element: ... * w[h] + ...
        const int32_t h = attn__leaf(&x.g, LEAF_h);
        const int w = attn__symbol_add(&x.g, &random_expr::symbols()[0]);
        int score = build.node(VT_F32, 4);
        score = score < 0 ? score : attn__op(&x.g, OP_mul, score, attn__load(&x.g, w, &h, 1), -1);
        score = score < 0 ? score : attn__op(&x.g, OP_add, score, build.node(VT_F32, 5), -1);
        const int mask = attn__const_b(&x.g, 1);
        attn_variant *v = nullptr;
        if (score < 0 || attn__variant_new(&x.g, score, mask, &v) < 0) {
            continue;
        }
        attn__adjoint *a = nullptr;
        REQUIRE(attn__adjoint_new(v, &a) == ATTN_OK);
        REQUIRE(attn__verify(&a->graph) == ATTN_OK);
        random_expr::values values(&a->graph, seed, false);
        std::vector<attn__bound> &bound = values.bound;
        rng r{seed};
        const attn__env env = random_expr::environment(r);
        const double s = 4 * r.uniform() - 2;
        std::vector<attn__val> val((size_t)a->graph.n);
        attn__eval(&a->graph, nullptr, a->graph.n - 1, s, &env, bound.data(), val.data());
        for (int symbol = 0; symbol < a->graph.n_symbols; symbol++) {
            const attn__symbol &what = a->graph.symbol[symbol];
            if (what.type != VT_F32) {
                continue;
            }
            const int elements = what.rank == 0 ? 1 : what.rank == 1 ? 8 : 64;
            for (int e = 0; e < elements; e++) {
                double got = 0; // the sum over the sites that read this element
                for (int i = 0; i < a->n_sites; i++) {
                    const attn__site &site = a->site[i];
                    int64_t at = 0;
                    bool inside = site.symbol == symbol;
                    for (int k = 0; k < site.n && inside; k++) {
                        const int64_t index = val[(size_t)site.index[k]].i;
                        inside = index >= 0 && index < 8;
                        at = at * 8 + index;
                    }
                    got += inside && at == e ? val[(size_t)site.d].f : 0;
                }
                attn__bound &b = bound[(size_t)symbol];
                float *const place = what.rank ? (float *)const_cast<char *>(b.data) + e : &b.f;
                const float was = *place;
                double want;
                const auto f = [&](double h) {
                    *place = was + (float)h;
                    const double y = eval(&a->graph, a->score, s, env, bound);
                    *place = was;
                    return y;
                };
                // A power of two, so that was + h is exact for numbers of this size.
                if (std::fabs(was) > 4 || std::fabs(was) < 0x1p-10f || !slope(f, 0x1p-11, &want)) {
                    continue;
                }
                compared++;
                moving += std::fabs(want) > 1e-9;
                if (std::isnan(got)) {
                    singular++;
                    continue;
                }
                if (!near(got, want, 3e-3)) {
                    FAIL("seed " << seed << ": d/d " << what.name << "(" << e << ") of "
                                 << text_of(&a->graph, a->score) << " gives " << got
                                 << ", differences " << want);
                }
            }
        }
        attn__adjoint_free(a);
        attn_variant_release(v);
    }
    CHECK(compared > 5000);
    CHECK(moving > 300);
    CHECK(singular * 200 < compared);
}

TEST_CASE("what a select does not take has no influence on the derivative") {
    CHECK(ds_at("s > 0 ? log(s) : 0.0", 0) == 0);
    CHECK(ds_at("s > 0 ? log(s) : 0.0", -1) == 0);
    CHECK(ds_at("s > 0 ? log(s) : 0.0", 2) == 0.5);
    CHECK(ds_at("sqrt(s > 0 ? s : 0.0)", -1) == 0); // the root's own slope is infinite there
    CHECK(ds_at("sqrt((s > 0 ? s : 0.0) + (s > 1 ? s : 0.0))", -1) == 0);
    CHECK(ds_at("sqrt(s > 5 ? s * s : s > 0 ? s : 0.0)", -1) == 0);
    CHECK(ds_at("log(max(s, 0.0))", -1) == 0);
    CHECK(ds_at("s < 0 ? s : s * (s < 1 ? 3.0 : 1 / (s - 1))", 0.5) == 3);
}

TEST_CASE("ties, kinks and divisors of 0") {
    CHECK(ds_at("min(s, 0.0)", 0) == 1); // the first takes it
    CHECK(ds_at("min(0.0, s)", 0) == 0);
    CHECK(ds_at("max(s, 0.0)", 0) == 1);
    CHECK(ds_at("max(0.0, s)", 0) == 0);
    CHECK(ds_at("abs(s)", 0) == 0);
    CHECK(ds_at("abs(s)", -3) == -1);
    CHECK(ds_at("floor(s) + ceil(s) + int(s)", 0.5) == 0);
    CHECK(ds_at("s % 3", 7.5) == 1);
    CHECK(ds_at("7.5 % s", 2) == -3);
    CHECK(ds_at("7.5 % s", 0) == 0);
    CHECK(ds_at("-7.5 % s", 2) == 4);
    CHECK(ds_at("fmod(-7.5, s)", 2) == 3);
    CHECK(near(ds_at("pow(s, 3)", -2), 12));
    CHECK(ds_at("pow(s, c)", 0, {0}) == 0);
    CHECK(near(ds_at("pow(2, s)", 3), 8 * std::log(2.0)));
    CHECK(ds_at("pow(0, s)", 3) == 0);
}

TEST_CASE("remainders by both arguments") {
    rng r{3};
    int compared = 0;
    for (const char *text : {"s % c", "fmod(s, c)", "c % s", "fmod(c, s)"}) {
        const adjoint x(text);
        const attn_graph *const g = &x.a->graph;
        attn__env env;
        memset(&env, 0, sizeof env);
        for (int sample = 0; sample < 200; sample++) {
            const double s = 20 * r.uniform() - 10;
            const auto bound = parameters(g, {(float)(20 * r.uniform() - 10)});
            double want;
            const auto f = [&](double h) { return eval(g, x.a->score, s + h, env, bound); };
            if (slope(f, 1e-4, &want)) {
                compared++;
                CHECK(near(eval(g, x.a->ds, s, env, bound), want));
            }
        }
    }
    CHECK(compared > 600);
}

TEST_CASE("only what moves the score is a site, with its indices") {
    const adjoint x("k <= q && gate[k] > 0 ? s + table[h][q - k] * slope + floor(step) : -inf");
    CHECK(x.a->n_sites == 2);
    for (int i = 0; i < x.a->n_sites; i++) {
        const attn__site &site = x.a->site[i];
        const std::string name = x.a->graph.symbol[site.symbol].name;
        if (name == "table") {
            CHECK(site.n == 2);
            CHECK(text_of(&x.a->graph, site.index[1]) == "q - k");
            CHECK(text_of(&x.a->graph, site.d) == "slope");
        } else {
            CHECK(name == "slope");
            CHECK(site.n == 0);
            CHECK(text_of(&x.a->graph, site.d) == "table[h][q - k]");
        }
    }
    CHECK(text_of(&x.a->graph, x.a->ds) == "1.0");
    const adjoint plain("k <= q");
    CHECK(plain.a->n_sites == 0);
    CHECK(text_of(&plain.a->graph, plain.a->ds) == "1.0");
}
