/* variant_handle.h: what the tests of variants share: a graph and a handle that release themselves,
   their texts, one pair's outcome.

   Who includes it: the tests of the expression graph, after Catch2. */
#ifndef ATTN_VARIANT_HANDLE_H
#define ATTN_VARIANT_HANDLE_H

#include "random_expr.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace random_expr {

struct graph {
    attn_graph g;
    graph() { attn__graph_init(&g); }
    ~graph() { attn__graph_clear(&g); }
    graph(const graph &) = delete;
};

inline std::string text_of(const attn_graph *g, int node) {
    char *text = nullptr;
    REQUIRE(attn__print_node(g, node, &text) == ATTN_OK);
    const std::string s = text;
    free(text);
    return s;
}

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
    inline std::string body() const {
        std::string t = text();
        while (t.rfind("attn 1;", 0) == 0 || t.rfind("f32 ", 0) == 0 || t.rfind("i32 ", 0) == 0 ||
               t.rfind("bool ", 0) == 0) {
            t = t.substr(t.find('\n') + 1);
        }
        return t;
    }
};

inline std::string body(const std::string &text) {
    return variant(text).body();
}

struct outcome {
    bool masked;
    float score;
};

/* What a variant makes of one pair; a final score of -inf masks. */
inline outcome run(const variant &v, float s, const attn__env &env, const values &with) {
    const attn_graph *g = &v.v->graph;
    const int top = std::max(v.v->score, v.v->mask);
    const auto val = eval32(g, top, s, env, with.bound);
    const float score = val[(size_t)v.v->score].f;
    return {val[(size_t)v.v->mask].i == 0 || score == -INFINITY, score};
}

} // namespace random_expr

#endif
