/* compose_test.cc: splitting, composition, ready-made variants. */
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "variant_handle.h"

#include <string>

using namespace random_expr;

namespace {

variant compose(const std::vector<const variant *> &parts) {
    std::vector<const attn_variant *> raw;
    for (const variant *part : parts) {
        raw.push_back(part->v);
    }
    variant made;
    REQUIRE(attn_variant_compose(raw.data(), (int)raw.size(), &made.v) == ATTN_OK);
    return made;
}

} // namespace

/* -- Splitting and composition ----------------------------------------------------------------- */

TEST_CASE("splitting: -inf, false and bool arms mask") {
    CHECK(body("k <= q ? (h < 2 ? s * 2 : -inf) : cap") ==
          "h < 2 || q < k ? (k <= q ? s * 2 : cap) : -inf");
    CHECK(body("k <= q ? (h < 2 ? s : false) : true") == "h < 2 || q < k");
    CHECK(body("k <= q ? true : s * 2") == "k <= q ? s : s * 2");
    CHECK(body("k <= q ? false : s * 2") == "q < k ? s * 2 : -inf");
    /* Only a select at the root masks: this is arithmetic on -inf. */
    CHECK(body("(k <= q ? s : -inf) + cap") == "cap + (k <= q ? s : -inf)");
}

TEST_CASE("composition: scores chain, masks AND") {
    const variant causal("k <= q"), twice("s * 2"), add("s + w[h]"), window("q - k < 4"),
        plain("s");
    CHECK(compose({}).body() == "s");
    CHECK(compose({&plain}).body() == "s");
    CHECK(compose({&causal}).body() == "k <= q");
    CHECK(compose({&causal, &window}).body() == "k <= q && q - k < 4");
    CHECK(compose({&causal, &window, &causal}).text() == compose({&causal, &window}).text());
    /* s * 2 may overflow to -inf, and -inf + w[h] may be NaN. */
    CHECK(compose({&twice, &add}).body() == "s * 2 != -inf ? s * 2 + w[h] : -inf");
    CHECK(compose({&add, &twice}).body() == "(s + w[h]) * 2");
    CHECK(compose({&causal, &twice}).body() == "k <= q ? s * 2 : -inf");
    /* The second part's mask sees the first part's score. */
    const variant positive("s > 0 ? s : -inf");
    CHECK(compose({&twice, &positive}).body() == "0 < s * 2 ? s * 2 : -inf");
}

TEST_CASE("composition: what was masked stays masked") {
    const variant cap("20 * tanh(s / 20)"), bias("s + bias[b][h][q][k]"), causal("k <= q");
    const variant bounded = compose({&cap, &cap});
    CHECK(bounded.body().find("inf") == std::string::npos); /* ranges exclude -inf */
    const variant last = compose({&causal, &bias});
    CHECK(last.body() == "k <= q ? s + bias[b][h][q][k] : -inf"); /* -inf stays -inf to the end */
    const variant capped = compose({&bias, &cap});
    CHECK(capped.body().find("!= -inf ?") != std::string::npos);

    /* Alibi with known slopes keeps -inf, so the comparison is not needed before it. */
    variant alibi;
    const double heads = 8;
    REQUIRE(attn_variant_ready("alibi", &heads, 1, &alibi.v) == ATTN_OK);
    CHECK(compose({&bias, &alibi}).body().find("!=") == std::string::npos);
}

TEST_CASE("composition: what is masked at far positions stays masked") {
    /* Plans go up to 2^31 - 1 keys: the logarithm is of 0 from 1.1e9 on. */
    const variant far("s + log(max(0.0, float(1100000000 - k)))"), cap("30 * tanh(s / 30)");
    const variant both = compose({&far, &cap});
    const values none(&both.v->graph, 1);
    attn__env env;
    memset(&env, 0, sizeof env);
    env.leaf[LEAF_k] = 1000000000;
    CHECK(!run(both, 0, env, none).masked);
    env.leaf[LEAF_k] = 1200000000;
    CHECK(run(both, 0, env, none).masked);
}

TEST_CASE("composition against its definition, by brute force") {
    const std::vector<std::string> texts = {
        "k <= q",
        "q - k < 3 ? s + w[h] : -inf",
        "s + table[h][k]",
        "2 * tanh(s / 2)",
        "keep[k] ? s * 2 : false",
        "s > w[k] ? s : -1",
        "max(s, -3)",
        "-s",
        "s - exp2(-h) * abs(q - k)",
        "k == q ? true : s / cap",
        "1 / s",
    };
    rng r{5};
    int masked = 0, open = 0, rescued = 0;
    for (int trial = 0; trial < 600; trial++) {
        std::vector<variant> parts;
        std::vector<const variant *> raw;
        for (int n = r.between(1, 4); n-- > 0;) {
            const std::string &text = texts[(size_t)r.below((int)texts.size())];
            parts.emplace_back("bool keep[1]; " + text);
        }
        for (const variant &part : parts) {
            raw.push_back(&part);
        }
        const variant whole = compose(raw);
        INFO(whole.text());
        for (int pair = 0; pair < 20; pair++) {
            const attn__env env = environment(r);
            const uint64_t seed = r.bits();
            float s = (float)(8 * r.uniform() - 4);
            const outcome got = run(whole, s, env, values(&whole.v->graph, seed));
            bool gone = false;
            for (const variant &part : parts) {
                const outcome one = run(part, s, env, values(&part.v->graph, seed));
                gone = gone || one.masked;
                s = one.score;
            }
            rescued += gone && s != -INFINITY;
            masked += gone;
            open += !gone;
            REQUIRE(got.masked == gone);
            if (!gone) {
                attn__val32 a, b;
                a.f = got.score;
                b.f = s;
                REQUIRE(same(VT_F32, a, b));
            }
        }
    }
    CHECK(masked > 1000);
    CHECK(open > 1000);
    CHECK(rescued > 100);
}

TEST_CASE("any joins masks by OR") {
    const variant causal("k <= q"), first("k < 4"), score("s * 2");
    const attn_variant *both[] = {causal.v, first.v}, *wrong[] = {causal.v, score.v};
    const attn_variant *hole[] = {causal.v, nullptr};
    variant either, none;
    REQUIRE(attn_variant_any(both, 2, &either.v) == ATTN_OK);
    CHECK(either.body() == "k < 4 || k <= q");
    REQUIRE(attn_variant_any(nullptr, 0, &none.v) == ATTN_OK);
    CHECK(none.body() == "false");
    variant no;
    CHECK(attn_variant_any(wrong, 2, &no.v) == ATTN_VARIANT);
    CHECK(std::string(attn_error()).find("parts[1]") != std::string::npos);
    CHECK(attn_variant_any(hole, 2, &no.v) == ATTN_INVALID);
    CHECK(attn_variant_compose(hole, 2, &no.v) == ATTN_INVALID);
    CHECK(attn_variant_compose(nullptr, 1, &no.v) == ATTN_INVALID);
    CHECK(attn_variant_compose(both, 2, nullptr) == ATTN_INVALID);
}

TEST_CASE("parts that disagree about a tensor are refused") {
    const variant a("s + w[h]"), b("s + w[h][q]");
    const attn_variant *parts[] = {a.v, b.v};
    variant no;
    CHECK(attn_variant_compose(parts, 2, &no.v) == ATTN_VARIANT);
    CHECK(std::string(attn_error()).find("'w'") != std::string::npos);
}

/* -- Ready-made variants ----------------------------------------------------------------------- */

namespace {

variant ready(const char *name, std::vector<double> numbers) {
    variant v;
    const int status = attn_variant_ready(name, numbers.data(), (int)numbers.size(), &v.v);
    INFO(attn_error());
    REQUIRE(status == ATTN_OK);
    return v;
}

} // namespace

TEST_CASE("ready-made variants") {
    CHECK(ready("causal", {}).body() == "k <= q");
    CHECK(ready("window", {1024, 0}).body() == "q - k <= 1024 && k - q <= 0");
    CHECK(ready("prefix", {5}).body() == "k < 5 || k <= q");
    CHECK(ready("first_keys", {4, 60}).body() == "k <= q && (k < 4 || q - k <= 60)");
    CHECK(ready("alibi", {}).body() == "s - slopes[h] * abs(q - k)");
    CHECK(ready("softcap", {50}).body() == "tanh(s / 50) * 50");
    CHECK(ready("softcap", {0.5}).body() == "tanh(s / 0.5) * 0.5");
    CHECK(ready("dilated", {3}).body() == "(q - k) % 3 == 0");
    CHECK(ready("document", {}).text() == "attn 1;\ni32 ids[2];\nids[b][q] == ids[b][k]");
    CHECK(ready("bias", {}).body() == "t1 = bias[b][h][i][k];\nt1 != -inf ? s + t1 : -inf");
    CHECK(ready("bias", {0, 1, 0, 1}).body() ==
          "t1 = bias[0][h][0][k];\nt1 != -inf ? s + t1 : -inf");
    CHECK(ready("relative", {16}).body() == "s + table[h][max(-16, min(k - q, 16)) + 16]");
    const char *text = nullptr, *about = nullptr;
    int n = 0;
    while (attn_variant_list(n, &text, &about)) {
        CHECK(std::string(text).size() > 4);
        CHECK(std::string(about).size() > 10);
        n++;
    }
    CHECK(n >= 10);
    CHECK(attn_variant_list(-1, nullptr, nullptr) == nullptr);
}

TEST_CASE("alibi has the slopes of its paper") {
    for (int H : {1, 2, 8, 12, 16, 20, 40, 71}) {
        const variant v = ready("alibi", {(double)H});
        const values none(&v.v->graph, 1);
        /* The paper: 2^(-8/n) and its powers for n heads, n a power of two; otherwise those of the
           closest lower power, then every second one of twice that power. */
        int n = 1;
        while (2 * n <= H) {
            n *= 2;
        }
        for (int h = 0; h < H; h++) {
            const double slope = h < n ? std::exp2(-8.0 * (h + 1) / n)
                                       : std::exp2(-8.0 * (2 * (h - n) + 1) / (2 * n));
            attn__env env;
            memset(&env, 0, sizeof env);
            env.leaf[LEAF_h] = h;
            env.leaf[LEAF_q] = 3;
            env.leaf[LEAF_k] = 13;
            INFO(H << " heads, head " << h);
            const double score = (double)run(v, 0.0f, env, none).score;
            CHECK(std::fabs(score + 10 * slope) <= 1e-6 * 10 * slope);
        }
    }
}

TEST_CASE("alibi finds the power of two below every number of heads") {
    const auto f = [](int op, float x) {
        attn__val32 a, none;
        memset(&none, 0, sizeof none);
        a.f = x;
        return attn__op32(op, VT_F32, a, none, none).f;
    };
    int n = 1;
    for (int H = 1; H <= 1 << 16; H++) {
        n = 2 * n <= H ? 2 * n : n;
        REQUIRE(f(OP_exp2, f(OP_floor, f(OP_log2, (float)H))) == (float)n);
    }
}

TEST_CASE("ready-made variants refuse numbers that make no sense") {
    const struct {
        const char *name;
        std::vector<double> numbers;
    } rows[] = {{"window", {-1, 0}},       {"window", {1}},        {"window", {1.5, 0}},
                {"window", {INFINITY, 0}}, {"prefix", {NAN}},      {"softcap", {0}},
                {"softcap", {-3}},         {"softcap", {NAN}},     {"softcap", {1e300}},
                {"softcap", {1e-300}},     {"dilated", {0}},       {"alibi", {0}},
                {"alibi", {1e6}},          {"bias", {1, 1, 1, 2}}, {"bias", {1, 1}},
                {"relative", {-1}},        {"nothing", {}},        {"causal", {1}},
                {"relative", {2e9}}};
    for (const auto &row : rows) {
        variant v;
        INFO(row.name);
        CHECK(attn_variant_ready(row.name, row.numbers.data(), (int)row.numbers.size(), &v.v) ==
              ATTN_INVALID);
    }
    variant v;
    const double x[3] = {0, 0, 0};
    CHECK(attn_variant_ready(nullptr, nullptr, 0, &v.v) == ATTN_INVALID);
    CHECK(attn_variant_ready("window", nullptr, 2, &v.v) == ATTN_INVALID);
    CHECK(std::string(attn_error()) == "numbers is NULL; window takes 2");
    CHECK(attn_variant_ready("window", x, 3, &v.v) == ATTN_INVALID);
    CHECK(std::string(attn_error()) == "window takes 2 numbers, not 3");
    CHECK(attn_variant_ready("bias", x, 2, &v.v) == ATTN_INVALID);
    CHECK(std::string(attn_error()) == "bias takes 4 or 0 numbers, not 2");
    CHECK(attn_variant_ready("alibi", x, 2, &v.v) == ATTN_INVALID);
    CHECK(std::string(attn_error()) == "alibi takes 1 or 0 numbers, not 2");
}

TEST_CASE("a variant that cannot be made is NULL") {
    const variant score("s * 2"), one("f32 t[1]; s + t[k]"), other("f32 t[2]; s + t[q][k]");
    attn_variant *const stale = score.v;
    const attn_variant *const clash[] = {one.v, other.v}, *const none[] = {nullptr};
    attn_variant *v = stale;
    CHECK(attn_variant_parse("k <=", &v) == ATTN_PARSE);
    CHECK(v == nullptr);
    v = stale;
    CHECK(attn_variant_parse(nullptr, &v) == ATTN_INVALID);
    CHECK(v == nullptr);
    v = stale;
    CHECK(attn_variant_ready("nothing", nullptr, 0, &v) == ATTN_INVALID);
    CHECK(v == nullptr);
    v = stale;
    CHECK(attn_variant_compose(clash, 2, &v) == ATTN_VARIANT);
    CHECK(v == nullptr);
    v = stale;
    CHECK(attn_variant_compose(none, 1, &v) == ATTN_INVALID);
    CHECK(v == nullptr);
    v = stale;
    CHECK(attn_variant_any(clash, 1, &v) == ATTN_VARIANT);
    CHECK(v == nullptr);
    attn_graph *g = nullptr;
    REQUIRE(attn_graph_new(&g) == ATTN_OK);
    v = stale;
    CHECK(attn_graph_finish(g, 5, &v) == ATTN_INVALID);
    CHECK(v == nullptr);
    attn_graph_release(g);

    /* The place may be the part's own. */
    variant causal("k <= q");
    attn_variant *self = attn_variant_retain(causal.v);
    REQUIRE(attn_variant_compose((const attn_variant *const *)&self, 1, &self) == ATTN_OK);
    CHECK(std::string(attn_variant_text(self)) == causal.text());
    attn_variant_release(self);
    REQUIRE(causal.v->refs == 2);
    attn_variant_release(causal.v);
}
