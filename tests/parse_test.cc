/* parse_test.cc: text to variant and back; refusals; hostile text. */
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "variant_handle.h"

#include <clocale>
#include <string>

using namespace random_expr;

namespace {

int refused(const std::string &text) {
    attn_variant *v = nullptr;
    const int status = attn_variant_parse(text.c_str(), &v);
    CHECK(v == nullptr);
    attn_variant_release(v);
    return status;
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
    CHECK(body("s * -4294967296") == "s * -4.2949673e+09");
    CHECK(body("s * -2147483648") == "s * -2.1474836e+09");
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
        y = attn__float_parse(text + negative, strlen(text) - negative);
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
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        WARN("skipped: no locale with a decimal comma");
        return;
    }
    CHECK(body("s * 0.125 + 1.5e3") == "s * 0.125 + 1500");
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

TEST_CASE("a parameter may have bounds") {
    CHECK(variant("i32 w in 0..9; q - k < w").text() == "attn 1;\ni32 w in 0..9;\nq - k < w");
    CHECK(refused("f32 w in 0..9; s * w") == ATTN_VARIANT);
    CHECK(refused("i32 w in 9..0; k < w") == ATTN_VARIANT);
    CHECK(refused("i32 w in; k < w") == ATTN_PARSE);
}

TEST_CASE("a number that is too long is told from one that is too large") {
    CHECK(variant("s + 0." + std::string(90, '0') + "1").body() == "s + 0");
    CHECK(refused("s + 1" + std::string(60, '0')) == ATTN_PARSE);
    CHECK(std::string(attn_error()).find("does not fit f32") != std::string::npos);
    CHECK(refused("s + 0." + std::string(200, '1')) == ATTN_PARSE);
    CHECK(std::string(attn_error()).find("100") != std::string::npos);
}
