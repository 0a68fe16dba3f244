/* variety.c: the variant of a random case: ready-made ones with random numbers, compositions, and
   expressions that nobody wrote; see random.h.

   The oracle computes in double, so nothing here is discontinuous in s or in a computed f32; what
   jumps does so in whole numbers. Scores stay of moderate size, or both would differ by their
   rounding alone. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "random.h"

typedef struct writer {
    point *p;
    rng *r;
    int n_caps;
    int moderate; /* no huge numbers: the score is computed with, or an infinity meets p = 0 */
} writer;

int reads_tensors(int v) {
    return v == V_SLOPES || v == V_DOCUMENT || v == V_BIAS || v == V_RELATIVE || v == V_KEEP ||
           v == V_SCORE || v == V_COMPOSED;
}

static void add(char *to, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(char *to, size_t room, const char *format, ...) {
    const size_t n = strlen(to);
    va_list args;
    va_start(args, format);
    vsnprintf(to + n, n < room ? room - n : 0, format, args);
    va_end(args);
}

static int64_t at_least(int64_t x, int64_t most) {
    return x > most ? x : most;
}

/* Extents that an index by b, h, i or k can reach. */
static int64_t all_b(const point *p) {
    return at_least(p->tb, p->B);
}
static int64_t all_h(const point *p) {
    return at_least(p->th, p->H);
}
static int64_t all_q(const point *p) {
    return at_least(p->tq, side_q_rows(p));
}
static int64_t all_k(const point *p) {
    return at_least(p->tk, side_k_rows(p));
}

static const char *float_type(writer *w) {
    static const char *const types[] = {"f32", "f32", "f16", "bf16"};
    return types[rng_below(w->r, 4)];
}

/* Captures of `rank` extents; no room for more: 0. */
static int capture(writer *w, const char *name, const char *type, int rank, const int64_t *n,
                   const char *values) {
    char *const caps = w->p->caps;
    if (w->n_caps == CAPTURES || strlen(caps) + 80 > POINT_TEXT) {
        return 0;
    }
    add(caps, POINT_TEXT, "%s%s:%s:", *caps ? " " : "", name, type);
    for (int i = 0; i < rank; i++) {
        add(caps, POINT_TEXT, "%s%lld", i ? "x" : "", (long long)at_least(n[i], 1));
    }
    add(caps, POINT_TEXT, ":%s", values);
    w->n_caps++;
    return 1;
}

/* -- Ready-made -------------------------------------------------------------------------------- */
static void bias(writer *w, char *to, size_t room) {
    static const char *const values[] = {"normal", "normal", "small", "ninf",
                                         "min",    "m65504", "m1e9"};
    const point *const p = w->p;
    const int64_t whole[4] = {all_b(p), all_h(p), all_q(p), all_k(p)};
    int64_t n[4];
    int has[4];
    for (int i = 0; i < 4; i++) {
        has[i] = rng_below(w->r, 3) > 0;
        n[i] = has[i] ? whole[i] : 1;
    }
    add(to, room, "@bias %d %d %d %d", has[0], has[1], has[2], has[3]);
    const char *const v = values[rng_below(w->r, w->moderate ? 3 : 7)];
    capture(w, "bias", strcmp(v, "min") == 0 || strcmp(v, "m1e9") == 0 ? "f32" : float_type(w), 4,
            n, v);
}

static void ready_made(writer *w, int v, char *to, size_t room) {
    const point *const p = w->p;
    const int64_t at = rng_below(w->r, at_least(p->NK, 4)),
                  back = rng_below(w->r, at_least(p->NK / 2, 3));
    const int64_t h[1] = {all_h(p)}, ids[2] = {all_b(p), all_k(p)},
                  table[2] = {all_h(p), 2 * back + 1};
    switch (v) {
    case V_CAUSAL: add(to, room, "@causal"); break;
    case V_WINDOW: add(to, room, "@window %lld %lld", (long long)at, (long long)back); break;
    case V_PREFIX: add(to, room, "@prefix %lld", (long long)back); break;
    case V_FIRST_KEYS:
        add(to, room, "@first_keys %lld %lld", (long long)back, (long long)at);
        break;
    case V_ALIBI: add(to, room, "@alibi %lld", (long long)all_h(p)); break;
    case V_SLOPES:
        add(to, room, "@alibi");
        capture(w, "slopes", float_type(w), 1, h, rng_below(w->r, 2) ? "slopes" : "small");
        break;
    case V_SOFTCAP: add(to, room, "@softcap %.3g", 0.5 + 30 * rng_unit(w->r)); break;
    case V_DILATED: add(to, room, "@dilated %lld", (long long)(1 + rng_below(w->r, 5))); break;
    case V_DOCUMENT:
        add(to, room, "@document");
        capture(w, "ids", "i32", 2, ids, rng_below(w->r, 2) ? "docs" : "rand3");
        break;
    case V_BIAS: bias(w, to, room); break;
    default:
        add(to, room, "@relative %lld", (long long)back);
        capture(w, "table", float_type(w), 2, table, "normal");
        break;
    }
}

/* -- Masks ------------------------------------------------------------------------------------- */
static void mask(writer *w, int depth, char *to, size_t room) {
    rng *const r = w->r;
    const int64_t at = 1 + rng_below(r, at_least(w->p->NK, 3)), few = 2 + rng_below(r, 6);
    if (depth > 0 && rng_below(r, 3) > 0) {
        add(to, room, rng_below(r, 4) ? "(" : "!(");
        mask(w, depth - 1, to, room);
        add(to, room, rng_below(r, 2) ? " && " : " || ");
        mask(w, depth - 1, to, room);
        add(to, room, ")");
        return;
    }
    switch (rng_below(r, 12)) {
    case 0: add(to, room, "k <= q"); break;
    case 1: add(to, room, "q - k < %lld", (long long)at); break;
    case 2: add(to, room, "abs(q - k) < %lld", (long long)at); break;
    case 3: add(to, room, "(q + k) %% %lld == 0", (long long)few); break;
    case 4: add(to, room, "band(i, %lld) != 0", (long long)few); break;
    case 5:
        add(to, room, "floordiv(k, %lld) <= floordiv(q, %lld)", (long long)few, (long long)few);
        break;
    case 6: add(to, room, "h %% 2 == 0"); break;
    case 7: add(to, room, "k < %lld", (long long)at); break;
    case 8: add(to, room, "bxor(i, k) %% %lld != 1", (long long)few); break;
    case 9: add(to, room, "k * %lld >= i - b", (long long)few); break;
    case 10: add(to, room, "nk - k > %lld", (long long)few); break;
    default: add(to, room, "max(i, k) - min(i, k) != %lld", (long long)few); break;
    }
}

/* A bool tensor with one to four indices; an i32 tensor of documents, or one whose values are
   bounded. */
static void loaded_mask(writer *w, char *to, size_t room) {
    const point *const p = w->p;
    const int64_t k[1] = {all_k(p)}, bk[2] = {all_b(p), all_k(p)}, ik[2] = {all_q(p), all_k(p)},
                  all[4] = {all_b(p), all_h(p), all_q(p), all_k(p)}, i[1] = {all_q(p)};
    const char *const type = rng_below(w->r, 3) ? "bool" : "u8";
    switch (rng_below(w->r, 6)) {
    case 0:
        capture(w, "m1", type, 1, k, "keep");
        add(to, room, "bool m1[1]; m1[k]");
        break;
    case 1:
        capture(w, "m2", type, 2, bk, "keep");
        add(to, room, "bool m2[2]; m2[b][k] || k == 0");
        break;
    case 2:
        capture(w, "m3", type, 2, ik, rng_below(w->r, 2) ? "keep" : "false_row");
        add(to, room, "bool m3[2]; m3[i][k]");
        break;
    case 3:
        capture(w, "m4", type, 4, all, "keep");
        add(to, room, "bool m4[4]; m4[b][h][i][k]");
        break;
    case 4:
        capture(w, "d1", "i32", 2, bk, "docs");
        add(to, room, "i32 d1[2]; d1[b][k] <= d1[b][i]");
        break;
    default:
        capture(w, "w1", "i32", 1, i, "rand9");
        add(to, room, "i32 w1[1] in 0..8; q - k <= w1[i] * 2 && k - q <= w1[i]");
        break;
    }
}

/* -- Scores ------------------------------------------------------------------------------------ */
static void index_of(writer *w, char *to, size_t room, int64_t *extent) {
    const point *const p = w->p;
    const int64_t few = 2 + rng_below(w->r, 5), at = rng_below(w->r, 6);
    const int64_t whole[] = {
        all_h(p),   all_b(p),           all_k(p), all_q(p), few, few, all_k(p) + all_q(p),
        2 * at + 1, all_k(p) / few + 1, 8};
    const int64_t c = rng_below(w->r, 10);
    *extent = whole[c];
    if (rng_below(w->r, 8) == 0) { /* shorter than what is asked for: outside is 0 */
        *extent = 1 + *extent / 2;
    }
    switch (c) {
    case 0: add(to, room, "[h]"); break;
    case 1: add(to, room, "[b]"); break;
    case 2: add(to, room, "[k]"); break;
    case 3: add(to, room, "[i]"); break;
    case 4: add(to, room, "[k %% %lld]", (long long)few); break;
    case 5: add(to, room, "[i %% %lld]", (long long)few); break;
    case 6: add(to, room, "[k - i + %lld]", (long long)at); break;
    case 7:
        add(to, room, "[max(-%lld, min(k - q, %lld)) + %lld]", (long long)at, (long long)at,
            (long long)at);
        break;
    case 8: add(to, room, "[floordiv(k, %lld)]", (long long)few); break;
    default: add(to, room, "[band(q, 7)]"); break;
    }
}

static void load(writer *w, char *to, size_t room, const char *values) {
    char name[16], index[160] = "";
    int64_t n[4], total = 1;
    const int rank = 1 + (int)rng_below(w->r, 4);
    snprintf(name, sizeof name, "t%d", w->n_caps);
    for (int i = 0; i < rank; i++) {
        index_of(w, index, sizeof index, &n[i]);
        n[i] = total * n[i] > 100000 ? 2 : n[i];
        total *= n[i];
    }
    add(to, room, capture(w, name, float_type(w), rank, n, values) ? "%s%s" : "0.5", name, index);
}

static void number(writer *w, char *to, size_t room) {
    char name[16];
    if (w->n_caps == CAPTURES || strlen(w->p->caps) + 80 > POINT_TEXT || rng_below(w->r, 2)) {
        add(to, room, "%.2f", 0.2 + rng_unit(w->r));
        return;
    }
    snprintf(name, sizeof name, "p%d", w->n_caps);
    if (rng_below(w->r, 3)) {
        add(w->p->caps, POINT_TEXT, "%s%s=%.3g", *w->p->caps ? " " : "", name,
            0.2 + rng_unit(w->r));
    } else { /* a parameter that lies in a tensor */
        add(w->p->caps, POINT_TEXT, "%s%s:f32:1:positive", *w->p->caps ? " " : "", name);
    }
    w->n_caps++;
    add(to, room, "%s", name);
}

/* Something that does not depend on s, of size about 1. */
static void term(writer *w, char *to, size_t room) {
    switch (rng_below(w->r, 8)) {
    case 0:
    case 1:
    case 2: load(w, to, room, "normal"); break;
    case 3: add(to, room, "0.01 * (k - q)"); break;
    case 4: add(to, room, "exp(-0.1 * abs(q - k))"); break;
    case 5: add(to, room, "float(i %% 5) / (1 + h)"); break;
    case 6: add(to, room, "log(1 + abs(q - k)) / 4"); break;
    default: number(w, to, room); break;
    }
}

static void score(writer *w, int depth, char *to, size_t room);

/* before, score, middle, what stands behind it (s: score, t: term, n: number, l: load), after;
   the middle may be NULL. */
static void around(writer *w, int depth, char *to, size_t room, const char *before,
                   const char *middle, int what, const char *after) {
    add(to, room, "%s", before);
    score(w, depth - 1, to, room);
    if (middle) {
        add(to, room, "%s", middle);
        if (what == 's') {
            score(w, depth - 1, to, room);
        } else if (what == 'n') {
            number(w, to, room);
        } else if (what == 'l') {
            load(w, to, room, "normal");
        } else {
            term(w, to, room);
        }
    }
    add(to, room, "%s", after);
}

static void score(writer *w, int depth, char *to, size_t room) {
    if (depth == 0 || strlen(to) > 220) {
        add(to, room, "s");
        return;
    }
    switch (rng_below(w->r, 20)) {
    case 0: around(w, depth, to, room, "(", " + ", 't', ")"); break;
    case 1: around(w, depth, to, room, "(", " * ", 'n', ")"); break;
    case 2: around(w, depth, to, room, "(", " - ", 't', ")"); break;
    case 3: around(w, depth, to, room, "2 * tanh(", " * ", 'n', ")"); break;
    case 4: around(w, depth, to, room, "log(1 + 0.3 * pow(", ", 2) + exp(", 't', "))"); break;
    case 5: around(w, depth, to, room, "sin(", " + ", 't', ")"); break;
    case 6: around(w, depth, to, room, "cos(", " - ", 't', ")"); break;
    case 7: around(w, depth, to, room, "sqrt(1.5 + tanh(", NULL, 0, "))"); break;
    case 8: around(w, depth, to, room, "min(", ", ", 't', ")"); break;
    case 9: around(w, depth, to, room, "max(", ", ", 's', " * 0.5)"); break;
    case 10: around(w, depth, to, room, "abs(", " - ", 't', ")"); break;
    case 11: around(w, depth, to, room, "exp(-0.2 * abs(", NULL, 0, "))"); break;
    case 12: around(w, depth, to, room, "exp2(0.4 * tanh(", ")) * (1 + ", 'n', ")"); break;
    case 13: around(w, depth, to, room, "pow(1 + abs(", "), ", 'n', ")"); break;
    case 14: around(w, depth, to, room, "(", ") / (2 + cos(", 't', "))"); break;
    case 15: around(w, depth, to, room, "log2(1.2 + abs(", ")) - ", 't', ""); break;
    case 16:
        add(to, room, "(");
        mask(w, 0, to, room);
        around(w, depth, to, room, " ? ", " : ", 's', ")");
        break;
    case 17:
        add(to, room, "(");
        mask(w, 0, to, room);
        around(w, depth, to, room, " ? ", " * 0.5 : ", 't', ")");
        break;
    case 18: around(w, depth, to, room, "-(", " + fmod(", 'l', ", 0.7))"); break;
    default: around(w, depth, to, room, "(", ") * 0.7 + (", 'l', ") % 1.3"); break;
    }
}

/* -- All --------------------------------------------------------------------------------------- */
static void one(writer *w, int v, char *to, size_t room) {
    if (v < V_MASK) {
        ready_made(w, v, to, room);
    } else if (v == V_MASK) {
        mask(w, 2, to, room);
    } else if (v == V_KEEP) {
        loaded_mask(w, to, room);
    } else {
        score(w, 1 + (int)rng_below(w->r, 2), to, room);
        if (rng_below(w->r, 3) == 0) { /* a mask and a score in one text */
            char whole[POINT_TEXT] = "";
            mask(w, 1, whole, sizeof whole);
            add(whole, sizeof whole, " ? %s : -inf", to);
            snprintf(to, room, "%s", whole);
        }
    }
}

/* Names of captures are a part's own, so a part with the names of another is not taken twice. */
static void composed(writer *w, char *to, size_t room) {
    static const int pool[] = {V_CAUSAL,  V_WINDOW,  V_PREFIX,   V_ALIBI, V_SLOPES,
                               V_SOFTCAP, V_DILATED, V_DOCUMENT, V_BIAS,  V_RELATIVE,
                               V_MASK,    V_KEEP,    V_SCORE};
    const int n = 2 + (int)rng_below(w->r, 2), pool_size = sizeof pool / sizeof *pool;
    unsigned taken = 0;
    for (int i = 0; i < n; i++) {
        char part[POINT_TEXT] = "";
        const int v = (int)rng_below(w->r, pool_size);
        if (!(taken >> v & 1) && strlen(to) < 200 && strlen(w->p->caps) < 220) {
            one(w, pool[v], part, sizeof part);
            add(to, room, "%s%s", *to ? " ~ " : "", part);
            taken |= 1u << v;
        }
    }
}

/* Folding may leave nothing that reads a capture (`k <= q ? (k <= q ? s : t[k]) : -inf`). */
static void drop_unread(point *p) {
    char copy[POINT_TEXT], why[WHY] = "";
    attn_variant *variant;
    if (variant_of(p->variant, &variant, why) < 0) {
        return; /* the run tells */
    }
    snprintf(copy, sizeof copy, "%s", p->caps);
    p->caps[0] = 0;
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        const size_t n = strcspn(word, ":=");
        attn_symbol symbol = {.size = sizeof symbol};
        for (int i = 0; i < attn_variant_symbol(variant, i, &symbol); i++) {
            if (strlen(symbol.name) == n && strncmp(symbol.name, word, n) == 0) {
                add(p->caps, POINT_TEXT, "%s%s", *p->caps ? " " : "", word);
            }
        }
    }
    attn_variant_release(variant);
}

void variety_of(point *p, int v, rng *r) {
    writer w = {p, r, 0, p->plant || v == V_COMPOSED};
    char text[2 * POINT_TEXT] = "";
    switch (v) {
    case V_PLAIN: break;
    case V_FALSE: add(text, sizeof text, "k < i - i"); break;
    case V_COMPOSED: composed(&w, text, sizeof text); break;
    case V_ANY:
        add(text, sizeof text, "any ~ @window %d 0 ~ @prefix %d ~ ", (int)rng_below(r, 9),
            (int)rng_below(r, 4));
        mask(&w, 1, text, sizeof text);
        break;
    case V_NUMBERS: {
        char part[POINT_TEXT] = "";
        add(p->caps, sizeof p->caps, "n0:i32:1:rand9 x0=%.3g", 0.2 + rng_unit(r));
        w.n_caps = 2;
        mask(&w, 1, part, sizeof part);
        add(text, sizeof text, "i32 n0; q - k < n0 || (%s) ? s * x0 + x0 * x0 : -inf", part);
        break;
    }
    default: one(&w, v, text, sizeof text); break;
    }
    snprintf(p->variant, sizeof p->variant, "%.*s", POINT_TEXT - 1, text);
    drop_unread(p);
}
