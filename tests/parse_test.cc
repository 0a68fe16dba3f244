/* parse_test.cc: text to variant and back, refusals, splitting, composition, ready-made variants. */
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "random_expr.h"

#include <clocale>
#include <string>

using namespace random_expr;

namespace {

/* A handle that releases itself. */
struct variant {
    attn_variant *v = nullptr;
    variant() = default;
    explicit variant(const std::string &text) {
        INFO(text);
        const int status = attn_variant_parse(text.c_str(), &v);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
    }
    variant(variant &&other) noexcept : v(other.v) { other.v = nullptr; }
    variant(const variant &) = delete;
    ~variant() { attn_variant_release(v); }
    std::string text() const { return attn_variant_text(v); }
    /* The text below the version and the declarations. */
    std::string body() const {
        std::string t = text();
        while (t.rfind("attn 1;", 0) == 0 || t.rfind("f32 ", 0) == 0 || t.rfind("i32 ", 0) == 0 ||
               t.rfind("bool ", 0) == 0) {
            t = t.substr(t.find('\n') + 1);
        }
        return t;
    }
};

std::string body(const std::string &text) {
    return variant(text).body();
}

variant compose(const std::vector<const variant *> &parts) {
    std::vector<const attn_variant *> raw;
    for (const variant *part : parts) {
        raw.push_back(part->v);
    }
    variant made;
    REQUIRE(attn_variant_compose(raw.data(), (int)raw.size(), &made.v) == ATTN_OK);
    return made;
}

int refused(const std::string &text) {
    attn_variant *v = nullptr;
    const int status = attn_variant_parse(text.c_str(), &v);
    CHECK(v == nullptr);
    attn_variant_release(v);
    return status;
}

struct outcome {
    bool masked;
    float score;
};

/* What a variant makes of one pair; a final score of -inf masks. */
outcome run(const variant &v, float s, const attn__env &env, const values &with) {
    const attn_graph *g = &v.v->graph;
    const int top = std::max(v.v->score, v.v->mask);
    const auto val = eval32(g, top, s, env, with.bound);
    const float score = val[(size_t)v.v->score].f;
    return {val[(size_t)v.v->mask].i == 0 || score == -INFINITY, score};
}

} // namespace

TEST_CASE("print and parse are inverse on random variants") {
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        attn_graph g;
        attn__graph_init(&g);
        builder make(&g, seed);
        const int score = make.node(seed % 4 ? VT_F32 : VT_I32, 5);
        const int mask = seed % 3 ? make.node(VT_BOOL, 4) : attn__const_b(&g, 1);
        variant a, b;
        /* Folding i32 constants may overflow; then there is nothing to print. */
        if (score >= 0 && mask >= 0 && attn__variant_new(&g, score, mask, &a.v) == ATTN_OK) {
            INFO("seed " << seed << "\n" << a.text());
            REQUIRE(attn__verify(&a.v->graph) == ATTN_OK);
            const int status = attn_variant_parse(a.text().c_str(), &b.v);
            INFO(attn_error());
            REQUIRE(status == ATTN_OK);
            REQUIRE(b.text() == a.text());
            /* Not only the text: the same nodes in the same places. */
            REQUIRE(b.v->graph.n == a.v->graph.n);
            REQUIRE(b.v->score == a.v->score);
            REQUIRE(b.v->mask == a.v->mask);
            REQUIRE(!memcmp(b.v->graph.node, a.v->graph.node,
                            (size_t)a.v->graph.n * sizeof *a.v->graph.node));
            const values of_a(&a.v->graph, seed), of_b(&b.v->graph, seed);
            rng r{seed};
            const attn__env env = environment(r);
            const outcome x = run(a, 0.5f, env, of_a), y = run(b, 0.5f, env, of_b);
            REQUIRE(x.masked == y.masked);
        }
        attn__graph_clear(&g);
    }
}

TEST_CASE("canonical text") {
    CHECK(variant("k <= q && q - k < 1024 ? s + slopes[h] * (k - q) : -inf").text() ==
          "attn 1;\nf32 slopes[1];\n"
          "k <= q && q - k < 1024 ? s + slopes[h] * (k - q) : -inf");
    CHECK(variant("attn 1; # a comment\n i32 ids[2] in 0..63;bool c; f32 unused; "
                  "x = ids[b][q]; x == ids[b][k] && c")
              .text() == "attn 1;\nbool c;\ni32 ids[2] in 0..63;\nc && ids[b][q] == ids[b][k]");
    CHECK(body("s") == "s");
    CHECK(body("true") == "s");
    CHECK(body("false") == "false");
    CHECK(body("-inf") == "false");
    CHECK(body("k <= q ? s : -inf") == "k <= q");
    CHECK(body("k <= q ? -inf : s") == "q < k");
    CHECK(body("q - k") == "q - k");
    CHECK(body("k <= q ? q - k : -inf") == "k <= q ? q - k : -inf");
    CHECK(body("s * 2 / 4.0 + 1e30 - 0.1") == "s * 2 / 4 + 1e+30 - 0.1");
    CHECK(body("s + 16777217") == "s + 16777216");
    CHECK(body("s * -0.0") == "s * -0.0");
    CHECK(body("s + inf + nan") == "s + inf + nan");
    CHECK(body("t1 = q - k; s + t1") == "s + (q - k)");
    CHECK(body("t1[h] * sin(s + (q - k) * 2) + abs((q - k) * 2)") ==
          "t2 = (q - k) * 2;\nabs(t2) + t1[h] * sin(s + t2)");
    CHECK(body("select(k < q, s, cap) + floordiv(q, 3) % 5") ==
          "(k < q ? s : cap) + floordiv(q, 3) % 5");
    CHECK(body("a - (b1 - c) - d + (e + f)") == "e + f + (a - (b1 - c) - d)");
    CHECK(body("-(s + 1) * -s") == "-s * -(s + 1)");
    CHECK(body("!(s < 1) && (s < 2 || s < 3)") == "(s < 2 || s < 3) && !(s < 1)");
}

TEST_CASE("a graph of shared nodes has a short text") {
    std::string text = "x0 = s + cap;";
    for (int i = 1; i <= 2000; i++) {
        const std::string before = "x" + std::to_string(i - 1);
        text += "x" + std::to_string(i) + " = sin(" + before + ") * " + before + ";";
    }
    const variant v(text + "x2000");
    CHECK(v.text().size() < 100000);
    CHECK(variant(v.text()).text() == v.text());
}

TEST_CASE("a deep graph has a text that the parser takes") {
    std::string text = "x0 = s;";
    for (int i = 1; i <= 5000; i++) {
        text += "x" + std::to_string(i) + " = sin(x" + std::to_string(i - 1) + ");";
    }
    const variant v(text + "x5000");
    CHECK(variant(v.text()).text() == v.text());
}

TEST_CASE("floats print shortest and read back") {
    rng r{7};
    char text[ATTN__FLOAT_TEXT];
    for (int i = 0; i < 20000; i++) {
        const uint32_t bits = (uint32_t)r.bits();
        float x, y;
        memcpy(&x, &bits, 4);
        if (!std::isfinite(x)) {
            continue;
        }
        attn__float_text(x, text);
        const bool negative = text[0] == '-';
        INFO(text);
        REQUIRE(attn__float_parse(text + negative, strlen(text) - negative, &y) == ATTN_OK);
        y = negative ? -y : y;
        REQUIRE(!memcmp(&x, &y, 4));
    }
    attn__float_text(0.1f, text);
    CHECK(std::string(text) == "0.1");
    attn__float_text(-0.0f, text);
    CHECK(std::string(text) == "-0.0");
    attn__float_text(3.4028235e38f, text);
    CHECK(std::string(text) == "3.4028235e+38");
}

TEST_CASE("the decimal point does not follow the locale") {
    for (const char *name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"}) {
        if (setlocale(LC_NUMERIC, name)) {
            CHECK(body("s * 0.125 + 1.5e3") == "s * 0.125 + 1500");
            break;
        }
    }
    setlocale(LC_NUMERIC, "C");
}

TEST_CASE("refusals name the place") {
    const struct {
        const char *text;
        int status;
        const char *says;
    } rows[] = {
        {"", ATTN_PARSE, "the text ends"},
        {"k <=", ATTN_PARSE, "the text ends"},
        {"k <= q q", ATTN_PARSE, "column 8"},
        {"s +\n  * 2", ATTN_PARSE, "line 2, column 3"},
        {"s + (2", ATTN_PARSE, "expected ')'"},
        {"w[h", ATTN_PARSE, "expected ']'"},
        {"w[0][0][0][0][0]", ATTN_PARSE, "at most 4"},
        {"min(s)", ATTN_PARSE, "expected ','"},
        {"min(s, 1, 2)", ATTN_PARSE, "expected ')'"},
        {"foo(s)", ATTN_PARSE, "no function 'foo'"},
        {"k < q ? s", ATTN_PARSE, "expected ':'"},
        {"1e99", ATTN_PARSE, "does not fit f32"},
        {"99999999999999999999999999999999999999999", ATTN_PARSE, "does not fit f32"},
        {"12abc", ATTN_PARSE, "followed by a letter"},
        {"1.0f", ATTN_PARSE, "followed by a letter"},
        {"s $ 2", ATTN_PARSE, "0x24"},
        {"s \xc3\xa9", ATTN_PARSE, "0xc3"},
        {"s = 2; s", ATTN_PARSE, "meaning already"},
        {"x = 2; x = 3; x", ATTN_PARSE, "meaning already"},
        {"f32 x; x = 3; x", ATTN_PARSE, "meaning already"},
        {"x = y; y = 3; x", ATTN_PARSE, "meaning already"},
        {"attn 2; s", ATTN_PARSE, "version 1"},
        {"attn; s", ATTN_PARSE, "version 1"},
        {"f32 k; s", ATTN_VARIANT, "'k'"},
        {"f32 exp; s", ATTN_VARIANT, "'exp'"},
        {"f32 w[0]; s", ATTN_PARSE, "1 to 4"},
        {"f32 w[5]; s", ATTN_PARSE, "1 to 4"},
        {"i32 w[1] in 0..99999999999; s", ATTN_PARSE, "fits i32"},
        {"i32 w[1] in 0.5..1; s", ATTN_PARSE, "fits i32"},
        {"f64 w[1]; s", ATTN_PARSE, "expected"},
        {"0 <= k <= q", ATTN_VARIANT, "is bool"},
        {"inf", ATTN_OK, ""},
    };
    for (const auto &row : rows) {
        INFO(row.text);
        attn_variant *v = nullptr;
        CHECK(attn_variant_parse(row.text, &v) == row.status);
        if (row.status != ATTN_OK) {
            INFO(attn_error());
            CHECK(std::string(attn_error()).find(row.says) != std::string::npos);
        }
        attn_variant_release(v);
    }
    CHECK(attn_variant_parse(nullptr, nullptr) == ATTN_INVALID);
    CHECK(attn_variant_parse("s", nullptr) == ATTN_INVALID);
}

TEST_CASE("hostile text is refused without harm") {
    const int n = 200000;
    CHECK(refused(std::string(n, '(')) == ATTN_PARSE);
    CHECK(refused(std::string(n, '-') + "s") == ATTN_PARSE);
    CHECK(refused(std::string(n, '!') + "true") == ATTN_PARSE);
    CHECK(refused(std::string(n, '9')) == ATTN_PARSE);
    CHECK(refused(std::string(n, 'a')) == ATTN_PARSE);
    CHECK(refused("w" + std::string(n, '[')) == ATTN_PARSE);
    std::string chain, calls, bound, product = "s", masks = "k < 0";
    for (int i = 0; i < n; i++) {
        chain += "k<q?s:";
        calls += "abs(";
        bound += "x" + std::to_string(i) + "=s;";
        product += "*cap";
        masks += "||k<" + std::to_string(i);
    }
    CHECK(refused(chain + "s") == ATTN_PARSE);
    CHECK(refused(calls) == ATTN_PARSE);
    CHECK(refused(bound + "s") == ATTN_PARSE);
    CHECK(refused(product) == ATTN_VARIANT);
    CHECK(refused(masks) == ATTN_VARIANT);
}

TEST_CASE("random bytes never parse into something that does not print") {
    static const char *const pieces[] = {"s",   "k",    "q",  "h",      "1",  "2.5",  "-",
                                         "+",   "*",    "/",  "%",      "(",  ")",    "[",
                                         "]",   "?",    ":",  "<",      "<=", "==",   "&&",
                                         "||",  "!",    "w",  "cap",    ";",  "=",    "f32",
                                         "i32", "bool", "in", "..",     "0",  "true", "inf",
                                         "nan", "min(", ",",  "attn 1;"};
    rng r{99};
    int good = 0;
    for (int i = 0; i < 20000; i++) {
        std::string text;
        for (int n = r.below(14); n-- >= 0;) {
            text += pieces[r.below((int)(sizeof pieces / sizeof *pieces))];
            text += " ";
        }
        attn_variant *v = nullptr;
        if (attn_variant_parse(text.c_str(), &v) == ATTN_OK) {
            good++;
            INFO(text);
            REQUIRE(variant(attn_variant_text(v)).text() == attn_variant_text(v));
            attn_variant_release(v);
        }
    }
    CHECK(good > 20);
}

/* -- Splitting and composition ---------------------------------------------------------------------- */

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

/* -- Ready-made variants --------------------------------------------------------------------------- */

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
    CHECK(ready("bias", {}).body() == "s + bias[b][h][i][k]");
    CHECK(ready("bias", {0, 1, 0, 1}).body() == "s + bias[0][h][0][k]");
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
            CHECK(run(v, 0.0f, env, none).score == Approx(-10 * slope).epsilon(1e-6));
        }
    }
}

TEST_CASE("ready-made variants refuse numbers that make no sense") {
    const struct {
        const char *name;
        std::vector<double> numbers;
    } rows[] = {{"window", {-1, 0}},       {"window", {1}},    {"window", {1.5, 0}},
                {"window", {INFINITY, 0}}, {"prefix", {NAN}},  {"softcap", {0}},
                {"softcap", {-3}},         {"softcap", {NAN}}, {"softcap", {1e300}},
                {"dilated", {0}},          {"alibi", {0}},     {"alibi", {1e6}},
                {"bias", {1, 1, 1, 2}},    {"bias", {1, 1}},   {"relative", {-1}},
                {"nothing", {}},           {"causal", {1}},    {"relative", {2e9}}};
    for (const auto &row : rows) {
        variant v;
        INFO(row.name);
        CHECK(attn_variant_ready(row.name, row.numbers.data(), (int)row.numbers.size(), &v.v) ==
              ATTN_INVALID);
    }
    variant v;
    CHECK(attn_variant_ready(nullptr, nullptr, 0, &v.v) == ATTN_INVALID);
    CHECK(attn_variant_ready("window", nullptr, 2, &v.v) == ATTN_INVALID);
}
