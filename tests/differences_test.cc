// differences_test.cc: the oracle's gradients against central differences of its own results: of
// named features and of random variants, and of all that a variant reads.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"
#include "variant_handle.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace {

using namespace host;

const double inf = std::numeric_limits<double>::infinity();

void close(double got, double want, double tolerance) {
    CAPTURE(got, want);
    REQUIRE(std::fabs(got - want) <= tolerance * (1 + std::fabs(want)));
}

// The loss whose gradients are dout and dlse.
double loss(const Device &ref, const Call &call, const attn_variant *variant) {
    REQUIRE(run(ref.d, ATTN_FORWARD, call.c, variant) == ATTN_OK);
    double sum = 0;
    for (int64_t i = 0; i < call.o->count(); i++) {
        sum += call.o->get(i) * call.dout->get(i);
    }
    for (int64_t i = 0; call.c.dlse && i < call.lse->count(); i++) {
        const double lse = call.lse->get(i);
        sum += lse > -inf ? lse * call.dlse->get(i) : 0;
    }
    return sum;
}

// Every element of `x` moved by +-h and +-2h (exact in f32), against what backward gave.
void differences(const Device &ref, const Call &call, const attn_variant *variant, Tensor &x,
                 const Tensor &gradient, double tolerance) {
    const double h = 1.0 / 256;
    for (int64_t i = 0; i < x.count(); i++) {
        const double at = x.get(i);
        double f[4];
        const double steps[] = {-2, -1, 1, 2};
        for (int j = 0; j < 4; j++) {
            x.set(i, at + steps[j] * h);
            f[j] = loss(ref, call, variant);
        }
        x.set(i, at);
        CAPTURE(i);
        close(gradient.get(i), (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h), tolerance);
    }
}

void check_gradients(Call &call, const char *text, std::vector<Tensor *> tables,
                     std::vector<Tensor *> gradients) {
    const Device ref("ref");
    const Variant variant(text);
    CAPTURE(text, attn_error());
    REQUIRE(variant.status == ATTN_OK);
    REQUIRE(run(ref.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
    const int status = run(ref.d, ATTN_BACKWARD, call.c, variant.v);
    CAPTURE(attn_error());
    REQUIRE(status == ATTN_OK);
    differences(ref, call, variant.v, *call.q, *call.dq, 1e-8);
    differences(ref, call, variant.v, *call.k, *call.dk, 1e-8);
    differences(ref, call, variant.v, *call.v, *call.dv, 1e-8);
    if (call.c.dsink) {
        differences(ref, call, variant.v, *call.sink, *call.dsink, 1e-6); // stored as f32
    }
    for (size_t i = 0; i < tables.size(); i++) {
        differences(ref, call, variant.v, *tables[i], *gradients[i], 1e-6);
    }
}

} // namespace

TEST_CASE("central differences: plain, sink, LSE, dropout, groups") {
    Small call;
    call.fill();
    call.add_sink();
    call.c.dlse = &call.dlse->t;
    SECTION("plain") {
        check_gradients(call, "s", {}, {});
    }
    SECTION("a scale of its own") {
        call.c.flags = ATTN_SCALE_GIVEN;
        call.c.scale = -1.25;
        check_gradients(call, "s", {}, {});
    }
    SECTION("dropout") {
        call.c.dropout = 0.4;
        call.c.seed = 5;
        check_gradients(call, "k <= q", {}, {});
    }
    SECTION("empty rows") {
        check_gradients(call, "k + 2 < q", {}, {});
    }
    SECTION("top left") {
        call.c.flags = ATTN_TOP_LEFT;
        check_gradients(call, "k <= q", {}, {});
    }
    SECTION("a score that curves") {
        check_gradients(call, "2 * tanh(s / 2) + exp(-s)", {}, {});
    }
    SECTION("a score that ignores s") {
        check_gradients(call, "float(k - q) / 2", {}, {});
    }
}

TEST_CASE("central differences: tables and parameters") {
    Small call;
    call.fill();
    call.c.dlse = &call.dlse->t;
    const Owned bias = make(ATTN_F32, {call.B, call.H, call.NQ, call.NK}),
                dbias = make(ATTN_F32, {call.B, call.H, call.NQ, call.NK});
    const Owned slopes = make(ATTN_F32, {call.H}), dslopes = make(ATTN_F32, {call.H});
    const Owned c = make(ATTN_F32, {1}), dc = make(ATTN_F32, {1});
    bias->fill(11);
    slopes->fill(12);
    c->set(0, 1.5);
    SECTION("bias") {
        call.capture("bias", bias.get(), dbias.get());
        check_gradients(call, "s + bias[b][h][i][k]", {bias.get()}, {dbias.get()});
    }
    SECTION("bias read twice, once outside") {
        call.capture("bias", bias.get(), dbias.get());
        check_gradients(call, "s * bias[b][h][i][k] + bias[b][h][i][k + 1]", {bias.get()},
                        {dbias.get()});
    }
    SECTION("slopes and a parameter, masked") {
        call.capture("slopes", slopes.get(), dslopes.get());
        call.capture("c", c.get(), dc.get());
        check_gradients(call, "k <= q ? c * tanh((s + slopes[h] * (k - q)) / c) : -inf",
                        {slopes.get(), c.get()}, {dslopes.get(), dc.get()});
    }
}

TEST_CASE("central differences: a bias of every broadcast") {
    const Device ref("ref");
    for (int has = 0; has < 16; has++) {
        Small call;
        call.fill();
        call.c.dlse = &call.dlse->t;
        const auto extent = [&](int axis, int64_t n) { return has >> axis & 1 ? n : 1; };
        const std::vector<int64_t> shape = {extent(0, call.B), extent(1, call.H),
                                            extent(2, call.NQ), extent(3, call.NK)};
        const Owned bias = make(ATTN_F32, shape), dbias = make(ATTN_F32, shape);
        const double numbers[] = {double(has & 1), double(has >> 1 & 1), double(has >> 2 & 1),
                                  double(has >> 3)};
        Variant variant("s");
        attn_variant_release(variant.v);
        REQUIRE(attn_variant_ready("bias", numbers, 4, &variant.v) == ATTN_OK);
        bias->fill(31);
        call.capture("bias", bias.get(), dbias.get());
        CAPTURE(has, attn_error());
        REQUIRE(run(ref.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
        REQUIRE(run(ref.d, ATTN_BACKWARD, call.c, variant.v) == ATTN_OK);
        differences(ref, call, variant.v, *bias, *dbias, 1e-6);
    }
}

TEST_CASE("central differences: packed, used lengths, scales, block lists") {
    Small call;
    SECTION("packed q and k, uneven, with rows to spare") {
        call.fill(true, true);
        const Owned qo = make(ATTN_I32, {3}), ko = make(ATTN_I32, {3}), used = make(ATTN_I32, {2});
        const double q[] = {1, 2, 5}, k[] = {0, 5, 7}, u[] = {4, 2};
        for (int i = 0; i < 3; i++) {
            qo->set(i, q[i]);
            ko->set(i, k[i]);
        }
        used->set(0, u[0]);
        used->set(1, u[1]);
        call.c.q_offsets = &qo->t;
        call.c.k_offsets = &ko->t;
        call.c.k_used = &used->t;
        call.c.dlse = &call.dlse->t;
        check_gradients(call, "k <= q", {}, {});
        for (int64_t h = 0; h < call.H; h++) {
            REQUIRE(call.lse->get(h * 6) == -inf); // row 0 and the last belong to nobody
            REQUIRE(call.lse->get(h * 6 + 5) == -inf);
        }
    }
    SECTION("scales and block lists") {
        call.fill();
        const Owned qs = make(ATTN_F32, {call.B, call.H, 1}),
                    ks = make(ATTN_F32, {call.B, call.HK});
        const Owned vs = make(ATTN_F32, {1});
        const Owned counts = make(ATTN_I32, {1, call.H, 2});
        const Owned indices = make(ATTN_I32, {call.B, 1, 2, 3});
        qs->fill(21);
        ks->fill(22);
        vs->set(0, 1.5);
        counts->fill_all(3);
        counts->set(0, 1);
        for (int i = 0; i < 12; i++) {
            const double list[] = {1, -4, 9, 0, 1, 1};
            indices->set(i, list[i % 6]);
        }
        attn_blocks blocks = {sizeof blocks, 0, 2, 2, &counts->t, &indices->t};
        call.c.q_scale = &qs->t;
        call.c.k_scale = &ks->t;
        call.c.v_scale = &vs->t;
        call.c.blocks = &blocks;
        check_gradients(call, "s", {}, {});
    }
}

// -- Random variants ------------------------------------------------------------------------------

namespace {

// A score and a mask that nobody has named, and a tensor for each thing that they read.
struct Random {
    random_expr::graph graph;
    attn_variant *variant = nullptr;
    std::vector<Owned> values, gradients; // of what has a gradient

    Random(uint64_t seed, Call &call) {
        random_expr::options o;
        o.wild = false;
        o.smooth = true;
        random_expr::builder build(&graph.g, seed, o);
        const int score = build.node(VT_F32, 5), mask = build.node(VT_BOOL, 2);
        if (score < 0 || mask < 0 || attn__variant_new(&graph.g, score, mask, &variant) < 0) {
            return;
        }
        for (int i = 0; i < variant->graph.n_symbols; i++) {
            const attn__symbol &s = variant->graph.symbol[i];
            const std::vector<int64_t> shape(s.rank ? s.rank : 1, s.rank ? 8 : 1);
            const int type = s.type == VT_F32 ? ATTN_F32 : s.type == VT_I32 ? ATTN_I32 : ATTN_BOOL;
            values.push_back(make(type, shape));
            gradients.push_back(s.type == VT_F32 ? make(ATTN_F32, shape) : nullptr);
            for (int64_t n = 0; n < values.back()->count(); n++) {
                const double x = noise(seed * 977 + (uint64_t)(i * 64 + n));
                values.back()->set(n, type == ATTN_F32   ? x
                                      : type == ATTN_I32 ? std::floor(4 * x)
                                                         : x > 0);
            }
            call.capture(s.name, values.back().get(), gradients.back().get());
        }
    }
    ~Random() { attn_variant_release(variant); }
    Random(const Random &) = delete;
};

// A slope on which steps of two lengths agree; what jumps or bends has none.
bool slope(const Device &ref, const Call &call, const attn_variant *variant, Tensor &x, int64_t at,
           double *result) {
    const double was = x.get(at), h = 1.0 / 1024;
    double f[5];
    for (int j = -2; j <= 2; j++) {
        x.set(at, was + j * h);
        f[j + 2] = loss(ref, call, variant);
    }
    x.set(at, was);
    const double wide = (f[4] - f[0]) / (4 * h), narrow = (f[3] - f[1]) / (2 * h);
    const double bend = (f[3] - 2 * f[2] + f[1]) / h;
    *result = (4 * narrow - wide) / 3;
    const double size = 1 + std::fabs(*result);
    return std::isfinite(*result) && std::fabs(wide - narrow) < 1e-4 * size &&
           std::fabs(bend) < 0.02 * size && std::fabs(f[2]) < 1e4 * size;
}

} // namespace

TEST_CASE("central differences: random variants, all that they read") {
    const Device ref("ref");
    int variants = 0, compared = 0, moving = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        Small call;
        call.fill();
        call.c.dlse = &call.dlse->t;
        if (seed % 2) {
            call.add_sink();
        }
        call.c.dropout = seed % 3 ? 0 : 0.25;
        Random r(seed, call);
        if (!r.variant || run(ref.d, ATTN_FORWARD, call.c, r.variant) != ATTN_OK ||
            run(ref.d, ATTN_BACKWARD, call.c, r.variant) != ATTN_OK) {
            continue; // i32 may overflow in it, say
        }
        variants++;
        std::vector<std::pair<Tensor *, Tensor *>> pairs = {{call.q.get(), call.dq.get()},
                                                            {call.k.get(), call.dk.get()},
                                                            {call.v.get(), call.dv.get()}};
        if (call.c.dsink) {
            pairs.push_back({call.sink.get(), call.dsink.get()});
        }
        for (size_t i = 0; i < r.values.size(); i++) {
            if (r.gradients[i]) {
                pairs.push_back({r.values[i].get(), r.gradients[i].get()});
            }
        }
        for (const auto &pair : pairs) {
            random_expr::rng pick{seed};
            for (int n = 0; n < 6; n++) {
                const int64_t at = pick.below((int)pair.first->count());
                double want;
                const double got = pair.second->get(at);
                if (!slope(ref, call, r.variant, *pair.first, at, &want)) {
                    continue;
                }
                compared++;
                moving += std::fabs(want) > 1e-9;
                CAPTURE(seed, attn_variant_text(r.variant), at, pair.first->type());
                close(got, want, 1e-3);
            }
        }
    }
    CHECK(variants > 200);
    CHECK(compared > 3000);
    CHECK(moving > 1000);
}
