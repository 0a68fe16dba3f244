/* main.c: the conformance suite: one list and one random generator for every device.

       conformance [--device NAME] [--list] [--random N] [--seed S] [--case TEXT] [--long]
                   [--only TEXT] [--part I/N] [--json FILE] [--cover] [--far] [--stop]
                   [--help]

   Without --list, --random and --case it runs the list and 1,000 random cases. A failure is printed
   as a command that repeats it. docs/conformance.md tells the rules and the JSON.

   To build: the C files of this folder, tests/plain*.c and the library, with -Ilib and
   -D_POSIX_C_SOURCE=200809L. It links internal functions of the library (the graph of a variant,
   element types), so it needs the static libattn.a or the library's C files, not libattn.so:

       cc -std=c11 -O2 -D_POSIX_C_SOURCE=200809L -Ilib tests/conformance/[a-z]*.c tests/plain*.c \
          libattn.a -lm -lpthread -ldl -o conformance */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suite.h"

typedef struct options {
    const char *device, *only, *part, *json, *one;
    long random, vary;
    uint64_t seed;
    int list, many, cover, stop, far;
} options;

/* What a device said that it cannot do, by argument: "direction" for backward. */
enum { ARGS = 16 };
typedef struct refusals {
    char arg[ARGS][48];
    long n[ARGS];
} refusals;

typedef struct tally {
    const options *o;
    const suite *s;
    FILE *json;
    long passed, failed;
    refusals refused;
} tally;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- JSON Lines -------------------------------------------------------------------------------- */
static void json_text(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            fprintf(f, "\\%c", *text);
        } else if ((unsigned char)*text < 32) {
            fprintf(f, "\\u%04x", *text);
        } else {
            fputc(*text, f);
        }
    }
    fputc('"', f);
}

static void json_member(FILE *f, const char *name, const char *text) {
    fprintf(f, ",\"%s\":", name);
    json_text(f, text);
}

static void json_line(const tally *t, const char *name, const char *line, const point *p,
                      const outcome *out, double seconds) {
    FILE *const f = t->json;
    attn_variant *variant = NULL;
    char why[WHY] = "";
    fprintf(f, "{\"schema\":1");
    json_member(f, "name", name);
    json_member(f, "point", line);
    if (variant_of(p->variant, &variant, why) == 0) {
        json_member(f, "variant", attn_variant_text(variant));
    }
    attn_variant_release(variant);
    json_member(f, "device", t->s->info.name);
    json_member(f, "arch", t->s->info.arch);
    json_member(f, "version", attn_version());
    json_member(f, "clock", t->s->info.emulated ? "emulated" : "hardware");
    fprintf(f, ",\"seconds\":%.6f,\"ok\":%s", seconds, out->ok ? "true" : "false");
    json_member(f, "why", out->why);
    json_member(f, "refused", out->refused);
    fprintf(f, ",\"errors\":{");
    for (int i = 0; i < out->n_errors; i++) {
        const output_error *const e = &out->error[i];
        fprintf(f, "%s", i ? "," : "");
        json_text(f, e->name);
        fprintf(f,
                ":{\"max\":%.6g,\"rms\":%.6g,\"max_allowed\":%.6g,\"rms_allowed\":%.6g,"
                "\"plain_max\":%.6g,\"plain_rms\":%.6g,\"floor\":%.6g,\"largest\":%.6g}",
                e->max, e->rms, e->max_most, e->rms_most, e->plain_max, e->plain_rms, e->floor,
                e->largest);
    }
    fprintf(f, "}}\n");
}

/* -- Cases ------------------------------------------------------------------------------------- */
static void count_refused(refusals *r, const char *arg) {
    int i = 0;
    while (i < ARGS - 1 && r->n[i] && strcmp(r->arg[i], arg) != 0) {
        i++;
    }
    snprintf(r->arg[i], sizeof r->arg[i], "%s", arg);
    r->n[i]++;
}

static void print_refused(const refusals *r) {
    for (int i = 0; i < ARGS && r->n[i]; i++) {
        printf("%s %s: %ld", i ? "," : "refused as unsupported:", r->arg[i], r->n[i]);
    }
    if (r->n[0]) {
        printf(" (of backward the forward was judged)\n");
    }
}

/* 0: the device cannot do it at all. */
static int run_point(tally *t, const char *name, const point *p) {
    char line[POINT_LINE];
    outcome out;
    point_print(p, line);
    const double begin = now();
    run_case(t->s, p, &out);
    const double seconds = now() - begin;
    const int refused = out.refused[0] != 0;
    t->passed += out.ok;
    t->failed += !out.ok && !refused;
    if (refused) {
        count_refused(&t->refused, out.refused);
    }
    if (!out.ok && !refused) {
        printf("FAILED %s: %s\n    conformance --device %s --case '%s'\n", name, out.why,
               t->s->device_name, line);
        fflush(stdout);
    } else if (t->o->one) {
        for (int i = 0; i < out.n_errors; i++) {
            const output_error *const e = &out.error[i];
            printf("%-12s error %.3g of %.3g allowed, rms %.3g of %.3g, plain %.3g, floor %.3g, "
                   "largest %.3g\n",
                   e->name, e->max, e->max_most, e->rms, e->rms_most, e->plain_max, e->floor,
                   e->largest);
        }
    }
    if (t->json) {
        json_line(t, name, line, p, &out, seconds);
    }
    return out.ok || !refused;
}

static void run_line(tally *t, const char *name, const char *line) {
    point p;
    char why[200];
    point_start(&p);
    if (point_parse(&p, line, why) < 0) {
        printf("FAILED %s: %s\n", name, why);
        t->failed++;
        return;
    }
    run_point(t, name, &p);
}

static int stopped(const tally *t) {
    return t->o->stop && t->failed > 0;
}

/* Every n-th case of the list, where several processes share it. */
static int is_mine(const options *o, long number) {
    long at = 0, of = 1;
    return !o->part || sscanf(o->part, "%ld/%ld", &at, &of) != 2 || of < 1 || number % of == at;
}

static void run_list(tally *t) {
    for (const listed *x = suite_list; x->name && !stopped(t); x++) {
        if ((!t->o->only || strstr(x->name, t->o->only)) && is_mine(t->o, x - suite_list)) {
            run_line(t, x->name, x->line);
        }
    }
}

/* A case and those that share its code. What the device cannot do at all is drawn anew, since chips
   have few cases. */
static void run_random(tally *t) {
    drawer *const d = drawer_new(t->o->seed);
    const long each = 1 + t->o->vary, most = 4 * t->o->random * each;
    long pairs, all_pairs, triples, done = 0;
    point shared, p;
    for (long i = 0; i < most && done < t->o->random * each && !stopped(t); i++) {
        char name[64];
        drawer_next(d, &p);
        if (done % each == 0) {
            if (t->o->far) {
                point_head(&p, done / each);
            }
            shared = p;
        } else {
            point_share(&p, &shared);
            if (t->o->far) {
                point_far(&p, done / each, done % each);
            }
        }
        snprintf(name, sizeof name, "random %llu/%ld", (unsigned long long)t->o->seed, i);
        done += t->o->cover || run_point(t, name, &p) || t->o->vary == 0;
    }
    drawer_cover(d, &pairs, &all_pairs, &triples);
    printf("seed %llu: %ld random cases, feature pairs covered: %ld of %ld, triples: %ld\n",
           (unsigned long long)t->o->seed, done, pairs, all_pairs, triples);
    drawer_free(d);
}

/* -- Options ----------------------------------------------------------------------------------- */
static int help(void) {
    const char *name, *about;
    char kind[200];
    printf(
        "conformance [--device NAME] [--list] [--random N] [--seed S] [--case TEXT] [--long]\n"
        "            [--only TEXT] [--part I/N] [--json FILE] [--cover] [--stop]\n\n"
        "--list    the fixed list; --only: those whose name contains TEXT\n"
        "--random  N cases drawn from --seed S (default 1); --cover: drawn and counted, not run\n"
        "--vary    each followed by M with other sizes, lengths, layouts and values, for which a\n"
        "          chip need not compile again\n"
        "--far     of these some with heads of 128 and 192 columns, with more keys, or with\n"
        "          elements past 2^31\n"
        "--long    the list and 20,000 random cases\n"
        "--part    of the list the cases number I, I + N, I + 2 N, ...\n"
        "--stop    at the first failure\n"
        "--case    one case, a line of these fields:\n\n");
    for (int i = 0; point_describe(i, &name, kind, &about); i++) {
        printf("  %-9s %s\n            %s\n", name, about, kind);
    }
    return 0;
}

static int read_options(int argc, char **argv, options *o) {
    *o = (options){.device = "cpu", .seed = 1, .random = -1};
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        const struct {
            const char *name;
            const char **text;
        } texts[] = {{"--device", &o->device},
                     {"--only", &o->only},
                     {"--json", &o->json},
                     {"--part", &o->part},
                     {"--case", &o->one}};
        int known = 0;
        for (size_t j = 0; j < sizeof texts / sizeof *texts && i + 1 < argc; j++) {
            if (strcmp(a, texts[j].name) == 0) {
                *texts[j].text = argv[i + 1];
                known = 2;
            }
        }
        if (!known && i + 1 < argc && strcmp(a, "--random") == 0) {
            o->random = strtol(argv[i + 1], NULL, 10);
            known = 2;
        } else if (!known && i + 1 < argc && strcmp(a, "--vary") == 0) {
            o->vary = strtol(argv[i + 1], NULL, 10);
            known = 2;
        } else if (!known && i + 1 < argc && strcmp(a, "--seed") == 0) {
            o->seed = strtoull(argv[i + 1], NULL, 10);
            known = 2;
        } else if (!known) {
            known = strcmp(a, "--list") == 0    ? (o->list = 1)
                    : strcmp(a, "--long") == 0  ? (o->many = 1)
                    : strcmp(a, "--cover") == 0 ? (o->cover = 1)
                    : strcmp(a, "--stop") == 0  ? (o->stop = 1)
                    : strcmp(a, "--far") == 0   ? (o->far = 1)
                                                : 0;
        }
        if (!known) {
            return -1;
        }
        i += known - 1;
    }
    if (!o->one && !o->list && o->random < 0) {
        o->list = 1;
        o->random = o->many ? 20000 : 1000;
    }
    return 0;
}

int main(int argc, char **argv) {
    options o;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        return help();
    }
    if (read_options(argc, argv, &o) < 0) {
        fprintf(stderr, "conformance: try --help\n");
        return 2;
    }
    suite s = {.device_name = o.device, .info = {.size = sizeof s.info}};
    if (attn_device_open("ref", NULL, &s.ref) < 0 || attn_device_open(o.device, NULL, &s.dev) < 0 ||
        attn_device_query(s.dev, &s.info) < 0) {
        fprintf(stderr, "conformance: %s\n", attn_error());
        return 2;
    }
    tally t = {.o = &o, .s = &s};
    if (o.json && !(t.json = fopen(o.json, "w"))) {
        fprintf(stderr, "conformance: cannot write %s\n", o.json);
        return 2;
    }
    if (t.json) { /* whole lines, also where time runs out */
        setvbuf(t.json, NULL, _IOLBF, 1 << 16);
    }
    if (o.one) {
        run_line(&t, "case", o.one);
    }
    if (o.list) {
        run_list(&t);
    }
    if (o.random > 0) {
        run_random(&t);
    }
    if (t.json && fclose(t.json) != 0) {
        fprintf(stderr, "conformance: cannot write %s\n", o.json);
        t.failed++;
    }
    attn_device_release(s.ref);
    attn_device_release(s.dev);
    print_refused(&t.refused);
    printf("%ld passed, %ld failed\n", t.passed, t.failed);
    return t.failed != 0 || (t.passed == 0 && !o.cover); /* nothing run is no success */
}
