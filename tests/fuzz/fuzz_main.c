/* fuzz_main.c: runs a fuzzer without libFuzzer: its corpus, then mutations, the same every time.

       fuzz_x CORPUS [MUTATIONS [SEED]]    a folder or a file; 20,000 mutations by default

   Under AddressSanitizer an input that ends the program is left in fuzz-input.bin, in the folder
   $TEST_UNDECLARED_OUTPUTS_DIR if that is set. To see the fault again, give the file as CORPUS and
   0 mutations; when it is mended, add the file to the corpus. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 16 };

typedef struct input {
    uint8_t *bytes;
    size_t n;
} input;

static input *corpus;
static size_t n_corpus;
static uint8_t now[MOST_BYTES]; /* what runs */
static size_t n_now;

/* -- The input that ends the program ---------------------------------------------------------- */

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void leave(void) {
    const char *const folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s%sfuzz-input.bin", folder ? folder : "", folder ? "/" : "");
    FILE *const file = fopen(path, "wb");
    if (file) {
        fwrite(now, 1, n_now, file);
        fclose(file);
        fprintf(stderr, "the input is in %s\n", path);
    }
}

/* -- Corpus ----------------------------------------------------------------------------------- */

static void add(const char *path) {
    FILE *const file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    n_now = fread(now, 1, sizeof now, file);
    fclose(file);
    corpus = realloc(corpus, (n_corpus + 1) * sizeof *corpus);
    uint8_t *const copy = malloc(n_now + 1);
    if (!corpus || !copy) {
        exit(1);
    }
    memcpy(copy, now, n_now);
    corpus[n_corpus++] = (input){copy, n_now};
}

static int by_bytes(const void *a, const void *b) {
    const input *const x = a, *const y = b;
    const int d = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

static void read_corpus(const char *path) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        add(path);
        return;
    }
    DIR *const folder = opendir(path);
    if (!folder) {
        perror(path);
        exit(1);
    }
    for (struct dirent *e; (e = readdir(folder)) != NULL;) {
        char name[4096];
        if (e->d_name[0] != '.' && snprintf(name, sizeof name, "%s/%s", path, e->d_name) < 4096) {
            add(name);
        }
    }
    closedir(folder);
    if (n_corpus == 0) {
        fprintf(stderr, "%s is empty\n", path);
        exit(1);
    }
    qsort(corpus, n_corpus, sizeof *corpus, by_bytes); /* whatever the folder's order */
}

/* -- Mutations -------------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t random_bits(void) { /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t below(size_t n) {
    return n ? random_bits() % n : 0;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static void insert(size_t at, const uint8_t *from, size_t n) {
    n = smaller(n, MOST_BYTES - n_now);
    memmove(now + at + n, now + at, n_now - at);
    memcpy(now + at, from, n);
    n_now += n;
}

static void mutate(void) {
    static const uint8_t odd[] = {0,   1,   0x7f, 0x80, 0xff, '0', '9', '-',
                                  '(', ')', '[',  ']',  '{',  '}', ',', '"'};
    const input *const other = &corpus[below(n_corpus)];
    const size_t at = below(n_now + 1), n = 1 + below(below(32) + 1);
    const size_t own = smaller(n, n_now - at), from = below(other->n + 1);
    uint8_t piece[64];
    switch (random_bits() % 7) {
    case 0: now[at % MOST_BYTES] ^= (uint8_t)(1u << random_bits() % 8); break;
    case 1: now[at % MOST_BYTES] = odd[below(sizeof odd)]; break;
    case 2: now[at % MOST_BYTES] = (uint8_t)random_bits(); break;
    case 3: insert(at, &odd[below(sizeof odd)], 1); break;
    case 4: insert(at, other->bytes + from, smaller(n, other->n - from)); break;
    case 5:
        memmove(now + at, now + at + own, n_now - at - own);
        n_now -= own;
        break;
    default: /* a piece of its own many times over */
        memcpy(piece, now + at, own);
        for (size_t i = below(64); i > 0; i--) {
            insert(at, piece, own);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS [MUTATIONS [SEED]]\n", argv[0]);
        return 2;
    }
    const long mutations = argc > 2 ? atol(argv[2]) : 20000;
    state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(leave);
    }
    read_corpus(argv[1]);
    for (size_t i = 0; i < n_corpus; i++) {
        n_now = corpus[i].n;
        memcpy(now, corpus[i].bytes, n_now);
        LLVMFuzzerTestOneInput(now, n_now);
    }
    for (long i = 0; i < mutations; i++) {
        const input *const first = &corpus[below(n_corpus)];
        n_now = first->n;
        memcpy(now, first->bytes, n_now);
        for (size_t k = 1 + below(6); k > 0; k--) {
            mutate();
        }
        LLVMFuzzerTestOneInput(now, n_now);
    }
    printf("ok 1 - %zu inputs of the corpus\n", n_corpus);
    printf("ok 2 - %ld mutations\n1..2\n", mutations);
    return 0;
}
