/* cover.c: which classes a case has: every pair of them early, random triples after; see random.h.

   While pairs are missing, a case is built around one of them: the other features are gone through
   in random order and each takes the class that makes most new pairs with what is chosen already
   (the greedy way of Cohen, Dalal, Fredman and Patton 1997). Then every feature is drawn by its
   weights. */
#include <stdlib.h>
#include <string.h>

#include "random.h"

typedef struct feature_info {
    int n;
    uint8_t weight[MOST_CLASSES];
} feature_info;

#define COUNT(...) (sizeof((uint8_t[]){__VA_ARGS__}))
static const feature_info features[FEATURE_COUNT] = {
#define X(NAME, ...) [F_##NAME] = {COUNT(__VA_ARGS__), {__VA_ARGS__}},
    FEATURES(X)
#undef X
};

enum { IMPOSSIBLE, MISSING, COVERED, ALL = 224 };

struct drawer {
    rng random;
    int first[FEATURE_COUNT]; /* number of a feature's class 0 among all classes */
    uint8_t pair[ALL][ALL];   /* [a][b] with a < b */
    long pairs, all_pairs, triples;
    uint8_t *triple; /* a bit each */
};

static int class_number(const drawer *d, int f, int c) {
    return d->first[f] + c;
}

static int draw_class(rng *r, int f) {
    int sum = 0;
    for (int c = 0; c < features[f].n; c++) {
        sum += features[f].weight[c];
    }
    int64_t at = rng_below(r, sum);
    for (int c = 0;; c++) {
        at -= features[f].weight[c];
        if (at < 0) {
            return c;
        }
    }
}

/* Does some case have both classes? Random ones are tried. */
static int possible(rng *r, int f, int c, int g, int d) {
    for (int i = 0; i < 400; i++) {
        uint8_t classes[FEATURE_COUNT];
        for (int x = 0; x < FEATURE_COUNT; x++) {
            classes[x] = (uint8_t)(i % 2 ? draw_class(r, x) : rng_below(r, features[x].n));
        }
        classes[f] = (uint8_t)c;
        classes[g] = (uint8_t)d;
        settle(classes);
        if (classes[f] == c && classes[g] == d) {
            return 1;
        }
    }
    return 0;
}

drawer *drawer_new(uint64_t seed) {
    drawer *const d = calloc(1, sizeof *d);
    rng fixed = rng_of(1, 1); /* the same pairs are possible for every seed */
    d->triple = calloc((size_t)ALL * ALL * ALL / 8, 1);
    d->random = rng_of(seed, 0);
    for (int f = 1; f < FEATURE_COUNT; f++) {
        d->first[f] = d->first[f - 1] + features[f - 1].n;
    }
    if (d->first[FEATURE_COUNT - 1] + features[FEATURE_COUNT - 1].n > ALL) {
        abort(); /* raise ALL */
    }
    for (int f = 0; f < FEATURE_COUNT; f++) {
        for (int g = f + 1; g < FEATURE_COUNT; g++) {
            for (int i = 0; i < features[f].n * features[g].n; i++) {
                const int c = i / features[g].n, e = i % features[g].n;
                const int there = possible(&fixed, f, c, g, e);
                d->pair[class_number(d, f, c)][class_number(d, g, e)] =
                    there ? MISSING : IMPOSSIBLE;
                d->all_pairs += there;
            }
        }
    }
    return d;
}

void drawer_free(drawer *d) {
    free(d->triple);
    free(d);
}

static uint8_t *pair_at(drawer *d, int f, int c, int g, int e) {
    const int a = class_number(d, f, c), b = class_number(d, g, e);
    return f < g ? &d->pair[a][b] : &d->pair[b][a];
}

/* A missing pair, from a random place on; 0: none is missing. */
static int find_missing(drawer *d, int found[4]) {
    const int begin = (int)rng_below(&d->random, FEATURE_COUNT * FEATURE_COUNT);
    for (int i = 0; i < FEATURE_COUNT * FEATURE_COUNT; i++) {
        const int at = (begin + i) % (FEATURE_COUNT * FEATURE_COUNT);
        const int f = at / FEATURE_COUNT, g = at % FEATURE_COUNT;
        for (int j = 0; f < g && j < features[f].n * features[g].n; j++) {
            const int c = j / features[g].n, e = j % features[g].n;
            if (*pair_at(d, f, c, g, e) == MISSING) {
                found[0] = f, found[1] = c, found[2] = g, found[3] = e;
                return 1;
            }
        }
    }
    return 0;
}

static int new_pairs(drawer *d, const uint8_t *classes, const uint8_t *chosen, int f, int c) {
    int n = 0;
    for (int g = 0; g < FEATURE_COUNT; g++) {
        n += chosen[g] && g != f && *pair_at(d, f, c, g, classes[g]) == MISSING;
    }
    return n;
}

static void build_around(drawer *d, const int found[4], uint8_t *classes) {
    uint8_t chosen[FEATURE_COUNT] = {0};
    classes[found[0]] = (uint8_t)found[1];
    classes[found[2]] = (uint8_t)found[3];
    chosen[found[0]] = chosen[found[2]] = 1;
    int order[FEATURE_COUNT];
    for (int i = 0; i < FEATURE_COUNT; i++) {
        const int j = (int)rng_below(&d->random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < FEATURE_COUNT; i++) {
        const int f = order[i];
        if (chosen[f]) {
            continue;
        }
        int best = draw_class(&d->random, f);
        int most = new_pairs(d, classes, chosen, f, best);
        for (int c = 0; c < features[f].n; c++) {
            const int n = new_pairs(d, classes, chosen, f, c);
            if (n > most) {
                best = c;
                most = n;
            }
        }
        classes[f] = (uint8_t)best;
        chosen[f] = 1;
    }
}

static void mark(drawer *d, const uint8_t *classes) {
    for (int f = 0; f < FEATURE_COUNT; f++) {
        for (int g = f + 1; g < FEATURE_COUNT; g++) {
            uint8_t *const p = pair_at(d, f, classes[f], g, classes[g]);
            d->pairs += *p == MISSING;
            *p = *p == MISSING ? COVERED : *p;
            for (int h = g + 1; h < FEATURE_COUNT; h++) {
                const size_t bit = ((size_t)class_number(d, f, classes[f]) * ALL +
                                    (size_t)class_number(d, g, classes[g])) *
                                       ALL +
                                   (size_t)class_number(d, h, classes[h]);
                d->triples += !(d->triple[bit / 8] >> bit % 8 & 1);
                d->triple[bit / 8] |= (uint8_t)(1 << bit % 8);
            }
        }
    }
}

void drawer_next(drawer *d, point *p) {
    uint8_t classes[FEATURE_COUNT];
    int found[4];
    int kept = 0;
    const int missing = find_missing(d, found);
    for (int i = 0; i < 40 && missing && !kept; i++) {
        for (int f = 0; f < FEATURE_COUNT; f++) {
            classes[f] = (uint8_t)draw_class(&d->random, f);
        }
        if (i < 10) {
            build_around(d, found, classes);
        }
        classes[found[0]] = (uint8_t)found[1];
        classes[found[2]] = (uint8_t)found[3];
        settle(classes);
        kept = classes[found[0]] == found[1] && classes[found[2]] == found[3];
    }
    if (!missing) {
        for (int f = 0; f < FEATURE_COUNT; f++) {
            classes[f] = (uint8_t)draw_class(&d->random, f);
        }
        settle(classes);
    }
    mark(d, classes);
    rng r = {rng_next(&d->random)};
    point_of_classes(p, classes, &r);
}

void drawer_cover(const drawer *d, long *pairs, long *all_pairs, long *triples) {
    *pairs = d->pairs;
    *all_pairs = d->all_pairs;
    *triples = d->triples;
}
