// ref_test.cc: the oracle against hand-worked numbers (differences_test.cc: against its own central
// differences); dropout's mask against a second implementation; merging against the whole.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"

#include <cstring>
#include <functional>
#include <limits>

namespace {

using namespace host;

const double inf = std::numeric_limits<double>::infinity();

void close(double got, double want, double tolerance) {
    CAPTURE(got, want);
    REQUIRE(std::fabs(got - want) <= tolerance * (1 + std::fabs(want)));
}

void require_values(const Tensor &t, std::vector<double> want) {
    REQUIRE(t.count() == static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); i++) {
        CAPTURE(i);
        close(t.get(static_cast<int64_t>(i)), want[i], 1e-6);
    }
}

// One head, two rows, two keys, D = DV = 1, scale 1: row 0 has scores {0, ln 3}, row 1 {0, 0}.
struct TwoByTwo : Exact {
    TwoByTwo() {
        B = H = HK = D = DV = 1;
        NQ = NK = 2;
        fill();
        const double ln3 = std::log(3.0);
        for (int i = 0; i < 2; i++) {
            q->set(i, i == 0 ? 1 : 0);
            k->set(i, i == 0 ? 0 : ln3);
            v->set(i, i == 0 ? 4 : 8);
            dout->set(i, i + 1);
        }
        c.flags = ATTN_SCALE_GIVEN;
        c.scale = 1;
    }
    void both(const char *text) {
        const Device ref("ref");
        const Variant variant(text);
        REQUIRE(run(ref.d, ATTN_FORWARD, c, variant.v) == ATTN_OK);
        REQUIRE(run(ref.d, ATTN_BACKWARD, c, variant.v) == ATTN_OK);
    }
};

} // namespace

TEST_CASE("two by two, by hand") {
    const double ln2 = std::log(2.0), ln3 = std::log(3.0);
    TwoByTwo t;
    SECTION("plain") {
        t.both("s");
        require_values(*t.o, {7, 6});
        require_values(*t.lse, {2 * ln2, ln2});
        // ds = p (dp - do o): row 0 {1/4 (4-7), 3/4 (8-7)}, row 1 {1/2 (8-12), 1/2 (16-12)}.
        require_values(*t.dq, {0.75 * ln3, 2 * ln3});
        require_values(*t.dk, {-0.75, 0.75});
        require_values(*t.dv, {0.25 + 1, 0.75 + 1});
    }
    SECTION("causal") {
        t.both("k <= q");
        require_values(*t.o, {4, 6});
        require_values(*t.lse, {0, ln2});
        require_values(*t.dq, {0, 2 * ln3});
        require_values(*t.dk, {0, 0});
        require_values(*t.dv, {1 + 1, 1});
    }
    SECTION("the last query stands at the last key, or the first at the first") {
        TwoByTwo one;
        one.NQ = 1;
        one.fill();
        one.q->set(0, 0);
        one.v->set(0, 4);
        one.v->set(1, 8);
        one.both("k <= q");
        require_values(*one.o, {6});
        one.c.flags |= ATTN_TOP_LEFT;
        one.both("k <= q");
        require_values(*one.o, {4});
        one.both("k <= i + nk - nq && nh == 1 && hk == 1 && batch == 1");
        require_values(*one.o, {6});
    }
    SECTION("-infinity masks, from a table, by a score, by q k") {
        const Owned table = make(ATTN_F32, {2}), grad = make(ATTN_F32, {2});
        t.capture("table", table.get(), grad.get());
        table->set(1, -inf);
        t.both("s + table[k]");
        require_values(*t.o, {4, 4});
        require_values(*t.lse, {0, 0});
        require_values(*t.dk, {0, 0});
        require_values(*grad, {0, 0});
        table->set(0, -inf);
        t.both("s + table[k]");
        require_values(*t.o, {0, 0});
        REQUIRE(t.lse->get(0) == -inf);
        t.c.n_captures = 0;
        t.q->set(1, 2);
        t.k->set(1, -inf);
        t.both("abs(s)");
        require_values(*t.o, {4, 4});
        require_values(*t.dq, {0, 0});
        require_values(*t.dk, {0, 0});
        require_values(*t.dv, {3, 0});
    }
    SECTION("a visible infinity of v stays one, however small its probability") {
        t.v->set(1, -inf);
        t.c.dlse = nullptr;
        const Variant far("k == 0 ? s : s - 1000");
        REQUIRE(run(Device("ref").d, ATTN_FORWARD, t.c, far.v) == ATTN_OK);
        REQUIRE(t.o->get(0) == -inf);
    }
    SECTION("gradient of the LSE") {
        t.dlse->set(0, 4);
        t.dlse->set(1, 0);
        t.c.dlse = &t.dlse->t;
        t.both("s");
        require_values(*t.dq, {(0.75 + 3) * ln3, 2 * ln3});
        require_values(*t.dk, {-0.75 + 1, 0.75 + 3});
        require_values(*t.dv, {1.25, 1.75});
    }
    SECTION("a sink of 0 is one more key with value 0") {
        t.add_sink();
        t.sink->set(0, 0);
        t.both("s");
        require_values(*t.o, {28.0 / 5, 4});
        require_values(*t.lse, {std::log(5.0), ln3});
        require_values(*t.dsink, {-28.0 / 5 / 5 - 8.0 / 3});
    }
    SECTION("nothing visible") {
        t.add_sink();
        t.both("k < 0");
        require_values(*t.o, {0, 0});
        require_values(*t.lse, {t.sink->get(0), t.sink->get(0)});
        require_values(*t.dq, {0, 0});
        require_values(*t.dk, {0, 0});
        require_values(*t.dv, {0, 0});
        require_values(*t.dsink, {0});
        t.dlse->fill_all(2);
        t.c.dlse = &t.dlse->t;
        t.both("k < 0");
        require_values(*t.dsink, {4}); // the LSE of an empty row is its sink
        t.c.sink = t.c.dsink = nullptr;
        t.both("k < 0");
        REQUIRE(t.lse->get(0) == -inf);
        require_values(*t.o, {0, 0});
        require_values(*t.dq, {0, 0});
    }
    SECTION("a score from a table, and the table's gradient") {
        const Owned table = make(ATTN_F32, {3}), grad = make(ATTN_F32, {3});
        table->set(0, 0.5);
        table->set(1, 1);
        grad->fill_all(9);
        t.capture("table", table.get(), grad.get());
        t.both("s + table[k] + table[2]");
        const double e = std::exp(0.5), p0 = 3 * e / (1 + 3 * e), p1 = e / (1 + e);
        require_values(*t.o, {4 + 4 * p0, 4 + 4 * p1});
        const double d0 = p0 * (1 - p0) * 4, d1 = p1 * (1 - p1) * 4 * 2; // ds of key 1
        require_values(*grad, {-d0 - d1, d0 + d1, 0});
        require_values(*t.dq, {d0 * ln3, d1 * ln3});
    }
    SECTION("the variant's derivative by s") {
        t.both("s * s + 2 * s");
        const double x = ln3 * (ln3 + 2), p = std::exp(x) / (1 + std::exp(x));
        require_values(*t.o, {4 + 4 * p, 6});
        const double g0 = p * (1 - p) * 4, g1 = 2;
        require_values(*t.dq, {g0 * (2 * ln3 + 2) * ln3, g1 * 2 * ln3});
        require_values(*t.dk, {-g0 * 2, g0 * (2 * ln3 + 2)});
    }
}

TEST_CASE("a block list is a mask") {
    const Device ref("ref");
    Small a, b;
    a.fill();
    b.fill();
    // Rows 0 1 see keys 2 3, row 2 sees all; far and repeated numbers do nothing.
    const Owned counts = make(ATTN_I32, {1, 1, 2}), indices = make(ATTN_I32, {1, 1, 2, 4});
    const double list[] = {1, 1, 2147483647, 0, 1, -2147483648.0, 0, 1};
    for (int i = 0; i < 8; i++) {
        indices->set(i, list[i]);
    }
    counts->set(0, 3);
    counts->set(1, 100);
    attn_blocks blocks = {sizeof blocks, 0, 2, 2, &counts->t, &indices->t};
    a.c.blocks = &blocks;
    const Variant plain("s"), mask("i >= 2 || k >= 2");
    for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
        REQUIRE(run(ref.d, direction, a.c, plain.v) == ATTN_OK);
        REQUIRE(run(ref.d, direction, b.c, mask.v) == ATTN_OK);
    }
    for (int64_t i = 0; i < a.o->count(); i++) {
        REQUIRE(a.o->get(i) == b.o->get(i));
    }
    for (int64_t i = 0; i < a.dk->count(); i++) {
        REQUIRE(a.dk->get(i) == b.dk->get(i));
    }
}

TEST_CASE("fp8 with scales is the f64 call of the scaled values") {
    const Device ref("ref");
    for (const int type : {ATTN_E4M3FN, ATTN_E4M3FNUZ, ATTN_E5M2, ATTN_E5M2FNUZ}) {
        Small a, b;
        a.type = type;
        a.NK = b.NK = 130; // two blocks of keys
        a.fill();
        b.fill();
        const Owned ks = make(ATTN_F32, {a.B, a.HK, 2}), vs = make(ATTN_F32, {a.B, a.HK, 2});
        const Owned qs = make(ATTN_F32, {a.B, a.H, 1});
        ks->fill(31);
        vs->fill(32);
        qs->fill(33);
        a.c.k_scale = &ks->t;
        a.c.v_scale = &vs->t;
        a.c.q_scale = &qs->t;
        for (int64_t i = 0; i < a.q->count(); i++) {
            b.q->set(i, a.q->get(i) * qs->get(i / a.D / a.NQ));
        }
        for (int64_t i = 0; i < a.k->count(); i++) {
            const int64_t row = i / a.D, at = row / a.NK * 2 + row % a.NK / 128;
            b.k->set(i, a.k->get(i) * ks->get(at));
        }
        for (int64_t i = 0; i < a.v->count(); i++) {
            const int64_t row = i / a.DV, at = row / a.NK * 2 + row % a.NK / 128;
            b.v->set(i, a.v->get(i) * vs->get(at));
        }
        REQUIRE(run(ref.d, ATTN_FORWARD, a.c, nullptr) == ATTN_OK);
        REQUIRE(run(ref.d, ATTN_FORWARD, b.c, nullptr) == ATTN_OK);
        for (int64_t i = 0; i < a.o->count(); i++) {
            close(a.o->get(i), b.o->get(i), 1e-13);
        }
    }
}

TEST_CASE("what is masked has no influence, what is visible has") {
    const Device ref("ref");
    const Variant causal("k <= q");
    const double bad[] = {inf, -inf, std::nan("")};
    for (const double x : bad) {
        Small clean, dirty;
        for (Small *c : {&clean, &dirty}) {
            c->NQ = c->NK = 4;
            c->fill();
        }
        // Key 3 is seen by row 3 alone.
        for (int64_t bh = 0; bh < dirty.B * dirty.HK; bh++) {
            for (int64_t d = 0; d < dirty.D; d++) {
                dirty.k->set((bh * 4 + 3) * dirty.D + d, x);
            }
            dirty.v->set((bh * 4 + 3) * dirty.DV, std::nan(""));
        }
        for (Small *c : {&clean, &dirty}) {
            REQUIRE(run(ref.d, ATTN_FORWARD, c->c, causal.v) == ATTN_OK);
            REQUIRE(run(ref.d, ATTN_BACKWARD, c->c, causal.v) == ATTN_OK);
        }
        for (int64_t i = 0; i < clean.o->count(); i++) {
            if (i / clean.DV % 4 < 3) {
                REQUIRE(dirty.o->get(i) == clean.o->get(i));
            }
        }
        for (int64_t i = 0; i < clean.dq->count(); i++) {
            REQUIRE((i / clean.D % 4 == 3 || dirty.dq->get(i) == clean.dq->get(i)));
        }
        if (std::isnan(x)) {
            for (int64_t bh = 0; bh < dirty.B * dirty.H; bh++) {
                REQUIRE(std::isnan(dirty.lse->get(bh * 4 + 3)));
                REQUIRE(std::isnan(dirty.o->get((bh * 4 + 3) * dirty.DV + 1)));
                REQUIRE(std::isnan(dirty.dq->get((bh * 4 + 3) * dirty.D)));
                REQUIRE(!std::isnan(dirty.dq->get((bh * 4 + 2) * dirty.D)));
            }
            REQUIRE(std::isnan(dirty.dk->get(0))); // key 0 is seen by row 3 too
        }
    }
    // A row whose score is +inf poisons dk and dv at its visible keys only.
    Small call;
    call.NQ = call.NK = 4;
    call.fill();
    for (int64_t bh = 0; bh < call.B * call.H; bh++) {
        call.q->set((bh * 4 + 1) * call.D, std::nan("")); // row 1 sees keys 0 and 1
    }
    REQUIRE(run(ref.d, ATTN_FORWARD, call.c, causal.v) == ATTN_OK);
    REQUIRE(run(ref.d, ATTN_BACKWARD, call.c, causal.v) == ATTN_OK);
    for (int64_t bh = 0; bh < call.B * call.HK; bh++) {
        for (int64_t k = 0; k < 4; k++) {
            REQUIRE(std::isnan(call.dk->get((bh * 4 + k) * call.D)) == (k < 2));
            REQUIRE(std::isnan(call.dv->get((bh * 4 + k) * call.DV)) == (k < 2));
        }
    }
}

TEST_CASE("shards compute what the whole computes") {
    const Device ref("ref");
    const Variant variant("k <= q ? s + 0.25 * h - 0.5 * b + 0.125 * (k - q) : -inf");
    Small whole;
    whole.NQ = 6;
    whole.NK = 8;
    whole.fill();
    whole.c.dropout = 0.3;
    whole.c.seed = 77;
    REQUIRE(run(ref.d, ATTN_FORWARD, whole.c, variant.v) == ATTN_OK);
    // Batch entry 1, heads 2 and 3 (key head 1), rows 2..5.
    Exact part;
    part.D = whole.D;
    part.DV = whole.DV;
    part.B = part.HK = 1;
    part.H = 2;
    part.NQ = 3;
    part.NK = 8;
    part.fill();
    const auto view = [](Tensor &t, const Tensor &of, std::vector<int64_t> from) {
        t.strides = of.strides;
        int64_t offset = 0;
        for (size_t i = 0; i < from.size(); i++) {
            offset += from[i] * of.strides[i];
        }
        t.t.data = static_cast<double *>(of.t.data) + offset;
    };
    view(*part.q, *whole.q, {1, 2, 2});
    view(*part.k, *whole.k, {1, 1});
    view(*part.v, *whole.v, {1, 1});
    part.c.dropout = 0.3;
    part.c.seed = 77;
    part.c.b0 = 1;
    part.c.h0 = part.c.i0 = 2;
    part.c.batch = 2;
    part.c.nh = 4;
    part.c.hk = 2;
    part.c.nq = 6;
    part.c.nk = 8;
    REQUIRE(run(ref.d, ATTN_FORWARD, part.c, variant.v) == ATTN_OK);
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t row = 0; row < 3; row++) {
            REQUIRE(part.lse->get(h * 3 + row) == whole.lse->get(((4 + 2 + h) * 6) + 2 + row));
            for (int64_t d = 0; d < 2; d++) {
                REQUIRE(part.o->get((h * 3 + row) * 2 + d) ==
                        whole.o->get((((4 + 2 + h) * 6) + 2 + row) * 2 + d));
            }
        }
    }
}

TEST_CASE("two halves of the keys, merged with the sink, are the whole") {
    const Device ref("ref");
    const Variant variant("k <= q && q - k < 5");
    Small whole, half[2];
    whole.NQ = half[0].NQ = half[1].NQ = 6;
    whole.NK = 9;
    half[0].NK = 4;
    half[1].NK = 5;
    whole.fill();
    whole.add_sink();
    REQUIRE(run(ref.d, ATTN_FORWARD, whole.c, variant.v) == ATTN_OK);
    for (int i = 0; i < 2; i++) {
        Small &part = half[i];
        part.fill();
        part.k->strides = whole.k->strides;
        part.v->strides = whole.v->strides;
        part.k->t.data = static_cast<double *>(whole.k->t.data) + i * 4 * whole.D;
        part.v->t.data = static_cast<double *>(whole.v->t.data) + i * 4 * whole.DV;
        part.c.k0 = i * 4;
        part.c.nk = 9;
        REQUIRE(run(ref.d, ATTN_FORWARD, part.c, variant.v) == ATTN_OK);
    }
    const attn_tensor *o[] = {&half[0].o->t, &half[1].o->t};
    const attn_tensor *lse[] = {&half[0].lse->t, &half[1].lse->t};
    const Owned out = make(ATTN_F64, whole.o->shape), lse_out = make(ATTN_F64, whole.lse->shape);
    REQUIRE(attn_merge(ref.d, 2, o, lse, &whole.sink->t, &out->t, &lse_out->t, nullptr) == ATTN_OK);
    for (int64_t i = 0; i < out->count(); i++) {
        close(out->get(i), whole.o->get(i), 1e-13);
    }
    for (int64_t i = 0; i < lse_out->count(); i++) {
        close(lse_out->get(i), whole.lse->get(i), 1e-13);
    }
}

TEST_CASE("merging: empty states are exact, NaN stays, shapes are checked") {
    const Device cpu("cpu");
    const Owned o1 = make(ATTN_F32, {3, 1, 300}), o2 = make(ATTN_F32, {3, 1, 300});
    const Owned l1 = make(ATTN_F32, {1, 3}), l2 = make(ATTN_F32, {1, 3});
    const Owned out = make(ATTN_F32, {3, 1, 300}), lse = make(ATTN_F32, {1, 3});
    o1->fill(41);
    o2->fill_all(std::nan("")); // an empty state's o is not even looked at
    l1->fill(42);
    l2->fill_all(-inf);
    l1->set(1, -inf);
    const attn_tensor *o[] = {&o1->t, &o2->t}, *l[] = {&l1->t, &l2->t};
    REQUIRE(attn_merge(cpu.d, 2, o, l, nullptr, &out->t, &lse->t, nullptr) == ATTN_OK);
    for (int64_t i = 0; i < out->count(); i++) {
        REQUIRE(out->get(i) == (i / 300 == 1 ? 0 : o1->get(i)));
    }
    for (int64_t row = 0; row < 3; row++) {
        REQUIRE(lse->get(row) == l1->get(row));
    }
    // In place, with a sink.
    const Owned sink = make(ATTN_F32, {1});
    sink->set(0, 0.5);
    const double first = l1->get(0), before = o1->get(0), most = 1 / (1 + std::exp(0.5 - first));
    REQUIRE(attn_merge(cpu.d, 2, o, l, &sink->t, &o1->t, &l1->t, nullptr) == ATTN_OK);
    close(o1->get(0), before * most, 1e-6);
    close(l1->get(0), first - std::log(most), 1e-6);
    REQUIRE(l1->get(1) == 0.5);
    REQUIRE(o1->get(300) == 0);
    l2->set(2, std::nan(""));
    l2->set(1, std::nan(""));
    l1->set(1, -inf);
    REQUIRE(attn_merge(cpu.d, 2, o, l, nullptr, &out->t, &lse->t, nullptr) == ATTN_OK);
    REQUIRE(std::isnan(out->get(600)));
    REQUIRE(std::isnan(lse->get(2)));
    REQUIRE(std::isnan(lse->get(1)));
    REQUIRE(std::isnan(out->get(300)));
    REQUIRE(!std::isnan(out->get(0)));
    // No state at all, and no place for the LSE.
    REQUIRE(attn_merge(cpu.d, 0, nullptr, nullptr, &sink->t, &out->t, nullptr, nullptr) == ATTN_OK);
    REQUIRE(out->get(7) == 0);

    const Owned wrong = make(ATTN_F32, {3, 2, 300}), padded = make(ATTN_F32, {1, 3, 1, 300});
    const Owned i32 = make(ATTN_I32, {1, 3});
    const attn_tensor *bad_o[] = {&o1->t, &wrong->t}, *bad_l[] = {&l1->t, &i32->t};
    REQUIRE(attn_merge(cpu.d, 2, bad_o, l, nullptr, &out->t, nullptr, nullptr) == ATTN_SHAPE);
    REQUIRE(std::string(attn_error_arg()) == "o");
    REQUIRE(attn_merge(cpu.d, 2, o, bad_l, nullptr, &out->t, nullptr, nullptr) == ATTN_DTYPE);
    REQUIRE(std::string(attn_error_arg()) == "lse");
    REQUIRE(attn_merge(cpu.d, 2, o, l, nullptr, &padded->t, nullptr, nullptr) == ATTN_SHAPE);
    REQUIRE(attn_merge(cpu.d, 2, o, l, &i32->t, &out->t, nullptr, nullptr) == ATTN_DTYPE);
    REQUIRE(attn_merge(cpu.d, -1, o, l, nullptr, &out->t, nullptr, nullptr) == ATTN_INVALID);
    REQUIRE(attn_merge(cpu.d, 2, o, l, nullptr, nullptr, nullptr, nullptr) == ATTN_INVALID);
    REQUIRE(std::string(attn_error_arg()) == "o_out");
}

namespace {

// Philox as the paper states it: the words as two pairs, each multiplied, swapped and mixed.
std::vector<uint32_t> philox(uint64_t seed, std::vector<uint32_t> c) {
    for (uint32_t round = 0; round < 7; round++) {
        const uint32_t key[2] = {static_cast<uint32_t>(seed) + round * 0x9E3779B9u,
                                 static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85u};
        const uint64_t first = uint64_t{c[0]} * 0xD2511F53u, second = uint64_t{c[2]} * 0xCD9E8D57u;
        c = {static_cast<uint32_t>(second >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(second),
             static_cast<uint32_t>(first >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(first)};
    }
    return c;
}

} // namespace

TEST_CASE("Philox4x32-7: the known answers of the Random123 distribution") {
    const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t want[4];
    } rows[] = {
        {{0, 0, 0, 0}, 0, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {{~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}, {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
    };
    for (const auto &row : rows) {
        uint32_t out[4];
        attn__philox(row.key, row.counter, out);
        const std::vector<uint32_t> second =
            philox(row.key, {row.counter[0], row.counter[1], row.counter[2], row.counter[3]});
        for (size_t i = 0; i < 4; i++) {
            REQUIRE(out[i] == row.want[i]);
            REQUIRE(second[i] == row.want[i]);
        }
    }
}

TEST_CASE("dropout: layout, rate, origins, and the same mask in the oracle") {
    const Device cpu("cpu"), ref("ref");
    attn_call c{};
    c.size = sizeof c;
    c.dropout = 0.2;
    c.seed = 0x123456789abcdef0;
    c.offset = 7;
    const Owned keep = make(ATTN_U8, {2, 3, 5, 77});
    REQUIRE(attn_dropout(cpu.d, &c, &keep->t, nullptr) == ATTN_OK);
    int64_t kept = 0;
    for (uint32_t n = 0; n < 2 * 3 * 5 * 77; n++) {
        const uint32_t k = n % 77, i = n / 77 % 5, bh = n / 77 / 5;
        const auto word = philox(c.seed, {bh, i, k / 32 * 4 + k % 8 / 2, 7});
        const uint32_t x = word[k % 32 / 8], half = k % 2 ? x >> 16 : x & 0xffff;
        REQUIRE(keep->get(n) == (half >= 13107)); // floor(65536 * 0.2 + 1/2)
        kept += half >= 13107;
    }
    close(static_cast<double>(kept) / (2 * 3 * 5 * 77), 0.8, 0.02);

    // A shard's mask is a part of the whole's.
    const Owned part = make(ATTN_U8, {1, 2, 3, 40});
    c.b0 = c.h0 = 1;
    c.i0 = 2;
    c.k0 = 37;
    c.batch = 2;
    c.nh = 3;
    c.nq = 5;
    c.nk = 77;
    REQUIRE(attn_dropout(cpu.d, &c, &part->t, nullptr) == ATTN_OK);
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t i = 0; i < 3; i++) {
            for (int64_t k = 0; k < 40; k++) {
                REQUIRE(part->get((h * 3 + i) * 40 + k) ==
                        keep->get(((3 + 1 + h) * 5 + 2 + i) * 77 + 37 + k));
            }
        }
    }

    // The key in memory, and the edges of p.
    const uint64_t seed = c.seed;
    attn_call at = {};
    at.size = sizeof at;
    at.dropout = 0.2;
    at.offset = 7;
    at.seed_at = &seed;
    const Owned same = make(ATTN_U8, {2, 3, 5, 77});
    REQUIRE(attn_dropout(cpu.d, &at, &same->t, nullptr) == ATTN_OK);
    for (int64_t n = 0; n < keep->count(); n++) {
        REQUIRE(same->get(n) == keep->get(n));
    }
    attn__problem p{};
    const double rates[][2] = {{0, 0}, {1e-9, 1}, {0.5, 32768}, {0.9999999, 65535}};
    for (const auto &rate : rates) {
        at.dropout = rate[0];
        REQUIRE(attn__dropout_in(cpu.d, &at, 0, &p) == ATTN_OK);
        REQUIRE(p.drop_threshold == rate[1]);
        REQUIRE(static_cast<double>(p.drop_factor) ==
                static_cast<double>(65536.0f / static_cast<float>(65536 - p.drop_threshold)));
    }
    at.dropout = 1;
    REQUIRE(attn_dropout(cpu.d, &at, &same->t, nullptr) == ATTN_INVALID);
    at.dropout = 0;
    at.flags = 64;
    REQUIRE(attn_dropout(cpu.d, &at, &same->t, nullptr) == ATTN_INVALID);
    REQUIRE(std::string(attn_error_arg()) == "flags");
    at.flags = ATTN_TOP_LEFT;
    REQUIRE(attn_dropout(cpu.d, &at, &same->t, nullptr) == ATTN_OK);
    REQUIRE(same->get(0) == 1);
    const Owned wrong = make(ATTN_F32, {2, 3, 5, 77});
    REQUIRE(attn_dropout(cpu.d, &at, &wrong->t, nullptr) == ATTN_DTYPE);

    // The oracle's output is the sum over what the mask keeps.
    Small call;
    call.fill();
    call.c.dropout = 0.5;
    call.c.seed = 3;
    const Owned mask = make(ATTN_U8, {call.B, call.H, call.NQ, call.NK});
    REQUIRE(attn_dropout(ref.d, &call.c, &mask->t, nullptr) == ATTN_OK);
    REQUIRE(run(ref.d, ATTN_FORWARD, call.c, nullptr) == ATTN_OK);
    for (int64_t n = 0; n < call.B * call.H * call.NQ; n++) {
        const int64_t kv = n / call.NQ / 2 * call.NK;
        double l = 0, sum = 0;
        for (int64_t k = 0; k < call.NK; k++) {
            double s = 0;
            for (int64_t d = 0; d < call.D; d++) {
                s += call.q->get(n * call.D + d) * call.k->get((kv + k) * call.D + d);
            }
            const double e = std::exp(s / std::sqrt(3.0));
            l += e;
            sum += e * 2 * mask->get(n * call.NK + k) * call.v->get((kv + k) * call.DV);
        }
        close(call.o->get(n * call.DV), sum / l, 1e-13);
        close(call.lse->get(n), std::log(l), 1e-13);
    }
}
