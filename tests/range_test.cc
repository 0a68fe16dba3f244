// range_test.cc: intervals and block classes against brute force: never wrong on random
// expressions, exact on every ready-made variant; runs of keys; refusals of i32 overflow.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
extern "C" {
#include "expr.h"
}
#include "variant_handle.h"

#include <cmath>
#include <string>
#include <vector>

namespace {

using random_expr::graph;
using random_expr::rng;
using random_expr::text_of;
const double inf = INFINITY;

attn__range range(double lo, double hi) {
    attn__range r = {lo, hi, 0};
    return r;
}

bool holds(const attn__range &r, int type, attn__val32 v) {
    if (type == VT_F32 && std::isnan(v.f)) {
        return r.nan != 0;
    }
    const double x = type == VT_F32 ? (double)v.f : v.i;
    return r.lo <= x && x <= r.hi;
}

// A random box and places in it.
struct random_box {
    attn__box box;
    bool any_s;

    random_box(rng &r, const attn__bound *bound) : any_s(r.below(3) == 0) {
        memset(&box, 0, sizeof box);
        box.bound = bound;
        for (int leaf = LEAF_s + 1; leaf < LEAF_COUNT; leaf++) {
            const int lo = r.below(5) ? r.between(-4, 12) : r.between(-1000000000, 1000000000);
            box.leaf[leaf] = range(lo, lo + (r.below(2) ? 0 : r.below(10)));
        }
        const double a = 8 * r.uniform() - 4, b = r.below(3) ? 3 * r.uniform() : 0;
        box.leaf[LEAF_s] = any_s ? range(-inf, inf) : range((float)a, (float)a + (float)b);
        box.leaf[LEAF_s].nan = any_s;
    }
    float s(rng &r) const {
        static const float edge[] = {INFINITY, NAN, 0, -0.0f, 1e-45f, -3e38f, 3.4e38f};
        const attn__range &at = box.leaf[LEAF_s];
        if (any_s) {
            return r.below(2) ? edge[r.below(7)] : (float)(200 * r.uniform() - 100);
        }
        const float x = (float)(at.lo + (at.hi - at.lo) * r.uniform());
        return r.below(3) == 0 ? (float)(r.below(2) ? at.lo : at.hi) : x;
    }
    attn__env place(rng &r) const {
        attn__env env;
        memset(&env, 0, sizeof env);
        for (int leaf = LEAF_s + 1; leaf < LEAF_COUNT; leaf++) {
            const int span = (int)(box.leaf[leaf].hi - box.leaf[leaf].lo);
            env.leaf[leaf] = (int32_t)box.leaf[leaf].lo + r.below(span + 1);
        }
        return env;
    }
};

} // namespace

TEST_CASE("ranges of random expressions hold every value that devices compute") {
    int64_t values_seen = 0, narrow = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        graph x;
        x.g.no_fold = 1;
        random_expr::builder build(&x.g, seed);
        const int root = build.node((int)(seed % 3), 6);
        REQUIRE(root >= 0);
        const random_expr::values values(&x.g, seed);
        rng r{seed};
        const random_box b(r, r.below(3) ? values.bound.data() : nullptr);
        std::vector<attn__range> ranges((size_t)x.g.n);
        attn__ranges(&x.g, root, &b.box, ranges.data());
        for (int sample = 0; sample < 30; sample++) {
            const attn__env env = b.place(r);
            const float s = b.s(r);
            const auto val = random_expr::eval32(&x.g, root, s, env, values.bound);
            for (int n = 0; n <= root; n++) {
                const attn__range &at = ranges[(size_t)n];
                if (!holds(at, x.g.node[n].type, val[(size_t)n])) {
                    FAIL("seed " << seed << ": " << text_of(&x.g, n) << " is " << val[(size_t)n].f
                                 << "|" << val[(size_t)n].i << ", not in " << at.lo << ".." << at.hi
                                 << (at.nan ? " or NaN" : ""));
                }
                values_seen++;
            }
        }
        narrow += std::isfinite(ranges[(size_t)root].lo) && std::isfinite(ranges[(size_t)root].hi);
    }
    CHECK(values_seen > 100000);
    CHECK(narrow > 1000); // they are not all everything
}

TEST_CASE("classes of random masks are never wrong") {
    int known[3] = {0, 0, 0};
    for (uint64_t seed = 1; seed <= 6000; seed++) {
        graph x;
        x.g.no_fold = (int)(seed & 1);
        random_expr::builder build(&x.g, seed);
        // Conditions about q and k, so that refinement has something to do, and anything else.
        int mask = build.node(VT_BOOL, 5);
        if (mask >= 0 && seed % 3 == 0) {
            mask = attn__op(&x.g, seed % 2 ? OP_and : OP_or, mask, build.node(VT_BOOL, 4), -1);
        }
        if (mask < 0) {
            continue; // folding found an overflow
        }
        const random_expr::values values(&x.g, seed);
        rng r{seed};
        const random_box b(r, values.bound.data());
        const int class_ = attn__class(&x.g, mask, &b.box);
        known[class_]++;
        for (int sample = 0; sample < 60 && class_ != CLASS_PART; sample++) {
            const attn__env env = b.place(r);
            const float s = b.s(r);
            const auto val = random_expr::eval32(&x.g, mask, s, env, values.bound);
            if (val[(size_t)mask].i != (class_ == CLASS_FULL)) {
                FAIL("seed " << seed << ": " << text_of(&x.g, mask) << " has class " << class_
                             << " and is " << val[(size_t)mask].i);
            }
        }
    }
    CHECK(known[CLASS_NONE] > 500);
    CHECK(known[CLASS_PART] > 500);
    CHECK(known[CLASS_FULL] > 500);
}

namespace {

// A ready-made variant, or several, with the values that it reads.
struct example {
    attn_variant *v = nullptr;
    std::vector<attn__bound> bound;
    std::vector<int32_t> ids;
    std::vector<float> numbers;
    std::string name;
    ~example() { attn_variant_release(v); }
};

enum { KEYS = 96 };

void make(example &e, const std::vector<std::pair<const char *, std::vector<double>>> &parts) {
    std::vector<attn_variant *> made;
    for (const auto &part : parts) {
        attn_variant *one = nullptr;
        INFO(part.first << ": " << attn_error());
        REQUIRE(attn_variant_ready(part.first, part.second.data(), (int)part.second.size(), &one) ==
                ATTN_OK);
        made.push_back(one);
        e.name += std::string(e.name.empty() ? "" : "+") + part.first;
        for (double x : part.second) {
            e.name += " " + std::to_string((int)x);
        }
    }
    REQUIRE(attn_variant_compose(made.data(), (int)made.size(), &e.v) == ATTN_OK);
    for (attn_variant *one : made) {
        attn_variant_release(one);
    }
    // Documents of 7, 1, 30, ... keys; anything finite for tables.
    const int lengths[] = {7, 1, 30, 2, 19, KEYS};
    for (int k = 0, document = 0, left = 7; k < KEYS; k++) {
        while (left == 0) {
            left = lengths[++document];
        }
        left--;
        e.ids.push_back(document + 1);
    }
    e.numbers.assign(4096 * 4, 0.25f);
    for (int i = 0; i < e.v->graph.n_symbols; i++) {
        const attn__symbol &s = e.v->graph.symbol[i];
        attn__bound t;
        memset(&t, 0, sizeof t);
        t.type = s.type == VT_I32 ? ATTN_I32 : ATTN_F32;
        t.data = s.type == VT_I32 ? (const char *)e.ids.data() : (const char *)e.numbers.data();
        for (int axis = s.rank - 1, st = 1; axis >= 0; axis--) {
            t.n[axis] = axis == s.rank - 1 ? KEYS : axis == s.rank - 2 ? 64 : 1;
            t.st[axis] = st;
            st *= (int)t.n[axis];
        }
        e.bound.push_back(t);
    }
}

// The classes of key blocks of a step, by trying every pair.
int brute_force(const example &e, const attn__box &box) {
    bool all = true, some = false;
    attn__env env;
    for (int leaf = LEAF_s + 1; leaf < LEAF_COUNT; leaf++) {
        env.leaf[leaf] = (int32_t)box.leaf[leaf].lo;
    }
    const int rows = (int)(box.leaf[LEAF_i].hi - box.leaf[LEAF_i].lo) + 1;
    for (int row = 0; row < rows; row++) {
        env.leaf[LEAF_i] = (int32_t)box.leaf[LEAF_i].lo + row;
        env.leaf[LEAF_q] = (int32_t)box.leaf[LEAF_q].lo + row;
        for (int k = (int)box.leaf[LEAF_k].lo; k <= box.leaf[LEAF_k].hi; k++) {
            env.leaf[LEAF_k] = k;
            const auto val = random_expr::eval32(&e.v->graph, e.v->mask, 0.5f, env, e.bound);
            (val[(size_t)e.v->mask].i ? some : all) = val[(size_t)e.v->mask].i != 0;
        }
    }
    return !some ? CLASS_NONE : all ? CLASS_FULL : CLASS_PART;
}

attn__box block(const example &e, int nq, int nk, int i, int rows, int k, int columns) {
    attn__box box;
    memset(&box, 0, sizeof box);
    box.bound = e.bound.data();
    box.leaf[LEAF_s] = range(-inf, inf);
    box.leaf[LEAF_s].nan = 1;
    box.leaf[LEAF_i] = range(i, i + rows - 1);
    box.leaf[LEAF_q] = range(i + nk - nq, i + rows - 1 + nk - nq);
    box.leaf[LEAF_k] = range(k, k + columns - 1);
    box.leaf[LEAF_nq] = range(nq, nq);
    box.leaf[LEAF_nk] = range(nk, nk);
    box.leaf[LEAF_nh] = box.leaf[LEAF_hk] = box.leaf[LEAF_batch] = range(1, 1);
    return box;
}

const std::vector<std::vector<std::pair<const char *, std::vector<double>>>> examples = {
    {{"causal", {}}},
    {{"window", {8, 0}}},
    {{"window", {0, 0}}},
    {{"window", {5, 17}}},
    {{"window", {1000, 1000}}},
    {{"prefix", {12}}},
    {{"prefix", {0}}},
    {{"first_keys", {4, 10}}},
    {{"first_keys", {0, 3}}},
    {{"dilated", {1}}},
    {{"dilated", {4}}},
    {{"dilated", {50}}},
    {{"document", {}}},
    {{"alibi", {8}}},
    {{"alibi", {}}},
    {{"softcap", {30}}},
    {{"bias", {}}},
    {{"bias", {0, 0, 1, 1}}},
    {{"relative", {16}}},
    {{"causal", {}}, {"window", {8, 3}}},
    {{"window", {8, 3}}, {"causal", {}}},
    {{"causal", {}}, {"document", {}}},
    {{"document", {}}, {"causal", {}}, {"alibi", {8}}, {"softcap", {20}}},
    {{"causal", {}}, {"dilated", {4}}},
    {{"dilated", {3}}, {"causal", {}}},
    {{"first_keys", {4, 10}}, {"relative", {16}}},
    {{"prefix", {12}}, {"alibi", {}}, {"bias", {}}},
};

} // namespace

TEST_CASE("classes are exact on every ready-made variant") {
    int counts[3] = {0, 0, 0};
    for (const auto &parts : examples) {
        example e;
        make(e, parts);
        rng r{99};
        for (int round = 0; round < 400; round++) {
            const int nk = 1 + r.below(KEYS), nq = 1 + r.below(64);
            const int i = r.below(nq), k = r.below(nk);
            const int rows = 1 + r.below(std::min(nq - i, 24)), columns = 1 + r.below(nk - k);
            const attn__box box = block(e, nq, nk, i, rows, k, columns);
            const int should = brute_force(e, box), is = attn__class(&e.v->graph, e.v->mask, &box);
            counts[is]++;
            if (is != should) {
                FAIL(e.name << " nq " << nq << " nk " << nk << " rows " << i << "+" << rows
                            << " keys " << k << "+" << columns << ": class " << is << ", not "
                            << should << "; " << attn_variant_text(e.v));
            }
        }
    }
    CHECK(counts[CLASS_NONE] > 500);
    CHECK(counts[CLASS_PART] > 500);
    CHECK(counts[CLASS_FULL] > 500);
}

TEST_CASE("runs cover exactly the visible blocks, in order, whatever the capacity") {
    for (const auto &parts : examples) {
        example e;
        make(e, parts);
        rng r{7};
        for (int round = 0; round < 60; round++) {
            const int nk = 1 + r.below(KEYS), nq = 1 + r.below(64), step = 1 + r.below(20);
            const int i = r.below(nq), rows = 1 + r.below(std::min(nq - i, 16));
            const int k0 = r.below(2) ? 0 : r.below(5), cap = 1 + r.below(3);
            attn__box box = block(e, nq, nk, i, rows, 0, 1);
            std::vector<attn__run> all;
            attn__run some[3];
            int32_t at = 0;
            const int columns = nk - std::min(k0, nk - 1);
            for (int n; (n = attn__runs(&e.v->graph, e.v->mask, &box, k0, columns, step, &at, some,
                                        cap)) > 0;) {
                REQUIRE(n <= cap);
                all.insert(all.end(), some, some + n);
            }
            CHECK(at == columns);
            std::vector<int> class_((size_t)columns, CLASS_NONE);
            int32_t last = 0;
            for (const attn__run &run : all) {
                REQUIRE(run.begin >= last);
                REQUIRE(run.begin % step == 0);
                REQUIRE((run.end % step == 0 || run.end == columns));
                REQUIRE(run.end > run.begin);
                last = run.end;
                for (int c = run.begin; c < run.end; c++) {
                    class_[(size_t)c] = run.class_;
                }
            }
            REQUIRE(last <= columns);
            for (int c = 0; c < columns; c += step) {
                box.leaf[LEAF_k] = range(k0 + c, k0 + std::min(c + step, columns) - 1);
                INFO(e.name << " block at " << c);
                REQUIRE(class_[(size_t)c] == brute_force(e, box));
            }
        }
    }
}

TEST_CASE("a window among many keys is three runs") {
    example e;
    make(e, {{"causal", {}}, {"window", {4095, 0}}});
    attn__box box = block(e, 100000, 100000, 70016, 128, 0, 1);
    attn__run runs[8];
    int32_t at = 0;
    REQUIRE(attn__runs(&e.v->graph, e.v->mask, &box, 0, 100000, 128, &at, runs, 8) == 3);
    CHECK(runs[0].class_ == CLASS_PART);
    CHECK(runs[1].class_ == CLASS_FULL);
    CHECK(runs[2].class_ == CLASS_PART);
    CHECK(runs[0].begin == (70016 - 4095) / 128 * 128);
    CHECK(runs[2].end == (70016 + 127) / 128 * 128 + 128);
}

TEST_CASE("i32 operations that may overflow are refused, with the expression") {
    const struct {
        const char *text;
        int status;
        const char *says;
    } rows[] = {
        {"q - k < 8", ATTN_OK, ""},
        {"(q - k) * 65536 < 8", ATTN_VARIANT, "65536"},
        {"(q - k) * 1000 < 8", ATTN_OK, ""},
        {"i32 t[1]; t[k] + 1 < q", ATTN_VARIANT, "t[k]"},
        {"i32 t[1] in -5..99; t[k] + 1 < q", ATTN_OK, ""},
        {"i32 w; q - k < w", ATTN_OK, ""},
        {"i32 w; q - w < k", ATTN_VARIANT, "w"},
        {"shl(q, 30) < 5", ATTN_OK, ""},
        {"int(s) < q", ATTN_OK, ""},
        {"int(s) - 1 < q", ATTN_VARIANT, "int(s)"},
        {"abs(int(s)) < q", ATTN_VARIANT, "abs"},
    };
    for (const auto &row : rows) {
        attn_variant *v = nullptr;
        INFO(row.text << ": " << attn_error());
        REQUIRE(attn_variant_parse(row.text, &v) == ATTN_OK);
        attn__box box;
        memset(&box, 0, sizeof box);
        box.leaf[LEAF_s] = range(-inf, inf);
        box.leaf[LEAF_s].nan = 1;
        box.leaf[LEAF_q] = box.leaf[LEAF_k] = range(0, 99999);
        std::vector<attn__range> scratch((size_t)v->graph.n * 2);
        const int status = attn__check_overflow(&v->graph, v->mask, &box, scratch.data());
        INFO(attn_error());
        CHECK(status == row.status);
        if (status != ATTN_OK) {
            CHECK(std::string(attn_error()).find(row.says) != std::string::npos);
        }
        attn_variant_release(v);
    }
}

TEST_CASE("a plan knows the bounds of a tensor, not how much of it a run brings") {
    const random_expr::variant v("i32 t[1] in 6..9; s + float((t[k] - 6) * 429496729)");
    const int32_t data[] = {6, 7, 8, 9};
    attn__bound bound;
    memset(&bound, 0, sizeof bound);
    bound.type = ATTN_I32;
    bound.n[0] = 8;
    bound.st[0] = 1;
    attn__box box;
    attn__box_init(&box, &bound);
    attn__box_set(&box, LEAF_k, 0, 3);
    std::vector<attn__range> scratch((size_t)v.v->graph.n * 2);
    CHECK(attn__check_overflow(&v.v->graph, v.v->score, &box, scratch.data()) == ATTN_VARIANT);
    bound.data = (const char *)data;
    bound.n[0] = 4;
    CHECK(attn__check_overflow(&v.v->graph, v.v->score, &box, scratch.data()) == ATTN_OK);
    bound.n[0] = 3; /* key 3 is outside and reads 0 */
    CHECK(attn__check_overflow(&v.v->graph, v.v->score, &box, scratch.data()) == ATTN_VARIANT);
}

TEST_CASE("an overflow says what to write instead") {
    const struct {
        const char *text, *says;
    } rows[] = {{"s + float(q * 10000)", "write 10000.0 for 10000"},
                {"s + float(q * k)", "write float(q)"}};
    for (const auto &row : rows) {
        const random_expr::variant v(row.text);
        attn__box box;
        attn__box_init(&box, nullptr);
        std::vector<attn__range> scratch((size_t)v.v->graph.n * 2);
        REQUIRE(attn__check_overflow(&v.v->graph, v.v->score, &box, scratch.data()) < 0);
        INFO(attn_error());
        CHECK(std::string(attn_error()).find(row.says) != std::string::npos);
    }
    const random_expr::variant v("s + floor(float(q)) * 10000");
    attn__box box;
    attn__box_init(&box, nullptr);
    std::vector<attn__range> scratch((size_t)v.v->graph.n * 2);
    CHECK(attn__check_overflow(&v.v->graph, v.v->score, &box, scratch.data()) == ATTN_OK);
}

TEST_CASE("a mask of more nodes than a class looks at is partly visible everywhere") {
    for (const int terms : {100, 1000}) {
        random_expr::graph g;
        int mask = attn__const_b(&g.g, 0);
        for (int i = 0; i < terms; i++) { /* k == 3 || k == 5 || ... */
            const int number = attn__const_i(&g.g, 2 * i + 3), k = attn__leaf(&g.g, LEAF_k);
            mask = attn__op(&g.g, OP_or, mask, attn__op(&g.g, OP_eq, k, number, -1), -1);
        }
        attn__box box;
        attn__box_init(&box, nullptr);
        attn__box_set(&box, LEAF_k, 0, 1);
        CHECK(attn__class(&g.g, mask, &box) == (terms < 200 ? CLASS_NONE : CLASS_PART));
    }
}

TEST_CASE("a bounded parameter has its bounds, and its value once it is known") {
    const random_expr::variant v("i32 w in 0..9; q - w <= k");
    attn__box box;
    attn__box_init(&box, nullptr);
    attn__box_set(&box, LEAF_q, 0, 99);
    std::vector<attn__range> range((size_t)v.v->mask + 1);
    attn__ranges(&v.v->graph, v.v->mask, &box, range.data());
    const attn__node &le = v.v->graph.node[v.v->mask];
    CHECK(range[(size_t)le.u.arg[0]].lo == -9);
    CHECK(range[(size_t)le.u.arg[0]].hi == 99);
}
