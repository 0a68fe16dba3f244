/* kernel_job.c: what a plan would tell a compiler, for one line of tools/kernels.txt.

       kernel_job gfx942 f16 128 128 4096 0 OUT [PASS] [dropout] [scales] [blocks] [TEXT]
       kernel_job       the targets: name, compiler, ATTN_EMU, bytes of shared memory of a block

   PASS, of backward: dq, dkdv or fused; of forward: multistage, that schedule where a plan would
   take the chip's other one.

   4096 are the query rows; 0: the first tile, 1: the next smaller one, ...; TEXT is a variant.
   Prints the definitions on one line, in front of them warps and the tile's keys, or nothing where
   there is no such tile; writes the variant's functions to the file OUT.

   Who calls it: tools/kernels.lua, which builds it with build/libattn.a: tiles and variants come
   from the library's own tables and printer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/emu_driver.h"
#include "gpu_text.h"
#include "target.h"

static int type_of(const char *name) {
    return strcmp(name, "f16") == 0    ? ATTN_F16
           : strcmp(name, "bf16") == 0 ? ATTN_BF16
           : strcmp(name, "f32") == 0  ? ATTN_F32
                                       : 0;
}

/* The variant's functions into `path`, its definitions to standard output. */
static int variant(const char *text, int backward, const char *path) {
    attn__bound bound[ATTN__MAX_SYMBOLS];
    int32_t word[ATTN__MAX_SYMBOLS];
    attn_variant *v = NULL;
    char *source = NULL;
    memset(bound, 0, sizeof bound);
    for (int i = 0; i < ATTN__MAX_SYMBOLS; i++) {
        bound[i].type = ATTN_F32;
    }
    if (attn_variant_parse(text, &v) < 0 ||
        attn__variant_source(v, bound, backward, NULL, &source) < 0) {
        fprintf(stderr, "%s\n", attn_error());
        return 1;
    }
    FILE *const out = fopen(path, "w");
    const int words = attn__variant_words(&v->graph, word);
    if (!out || fputs(source, out) < 0 || fclose(out)) {
        return 1;
    }
    printf(" -DATTN_HAS_SCORE=%d -DATTN_HAS_MASK=%d -DATTN_WORDS=%d", attn__has_score(v),
           attn__has_mask(v), words ? words : 1);
    free(source);
    attn_variant_release(v);
    return 0;
}

static int feature(const char *text, int backward, const char *path) {
    static const char *const names[][2] = {
        {"dropout", "DROPOUT"}, {"scales", "SCALES"}, {"blocks", "BLOCKS"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i][0]) == 0) {
            printf(" -DATTN_HAS_%s=1", names[i][1]);
            return 0;
        }
    }
    return variant(text, backward, path);
}

/* Backward: 1 dq, 3 dk and dv, where they are apart dk alone, 4 all; 0: forward. */
static int sums_of(const char *text) {
    return strcmp(text, "dq") == 0      ? 1
           : strcmp(text, "dkdv") == 0  ? 3
           : strcmp(text, "fused") == 0 ? 4
                                        : 0;
}

static void define_backward(const attn__grad_size *grad, int sums, int groups) {
    printf(" -DATTN_BACKWARD=1 -DATTN_KEY_ROWS=%d -DATTN_SUMS=%d", sums > 1,
           sums == 4 || (sums == 3 && !grad->apart) ? 3 : 1);
    if (sums == 4) {
        printf(" -DATTN_FUSED=1 -DATTN_SPLIT=%d -DATTN_WGMMA=%d", grad->split, groups);
    }
}

/* Of a chip without ATTN_EMU (PTX) nothing is said. */
static int list_targets(void) {
    const attn__target *chip;
    for (int i = 0; (chip = attn__target_at(i)); i++) {
        attn__target emulated;
        char name[64];
        snprintf(name, sizeof name, "emu:%s", chip->name);
        if (attn__emu_target(name, &emulated) == ATTN_OK) {
            printf("%s %s %d %d\n", chip->name, chip->compiler, emulated.emulated,
                   chip->shared);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        return list_targets();
    }
    const attn__target *const target = argc > 7 ? attn__target_find(argv[1]) : NULL;
    const int type = argc > 7 ? type_of(argv[2]) : 0;
    int status = 0;
    if (!target || !type) {
        fprintf(stderr, "kernel_job: target, type, D, DV, rows, smaller, file\n");
        return 2;
    }
    const int d = atoi(argv[3]), dv = atoi(argv[4]), sums = argc > 8 ? sums_of(argv[8]) : 0;
    const int multistage = argc > 8 && strcmp(argv[8], "multistage") == 0;
    const int most = d > dv ? d : dv;
    int groups = sums == 4 && attn__target_grad(target, type, most, 0, 1).fused.bm;
    attn__grad_size grad = attn__target_grad(target, type, most, atoll(argv[5]), groups);
    attn__tile_size tile = attn__target_producer(target, type, d, dv, atoll(argv[5]),
                                                 argc == 8 ? ATTN__TILE_PLAIN : ATTN__TILE_ANY);
    const int producer = !sums && !multistage && tile.bm > 0;
    if (!producer) {
        tile = sums == 4 ? grad.fused
               : sums    ? grad.tile
                         : attn__target_tile(target, type, d, dv, atoll(argv[5]));
    }
    for (int smaller = atoi(argv[6]); smaller > 0; smaller--) {
        const int least =
            sums ? attn__grad_least(target, most, sums == 4, groups) : ATTN__LEAST_KEYS;
        if (attn__tile_smaller(&tile, least)) {
            continue;
        }
        if (!groups) {
            return 0;
        }
        groups = 0; /* the twin's tile */
        grad = attn__target_grad(target, type, most, atoll(argv[5]), groups);
        tile = grad.fused;
    }
    if (tile.bm == 0) { /* the chip has no such kernel */
        return 0;
    }
    printf("%d %d -DATTN_TYPE=%d -DATTN_D=%d -DATTN_DV=%d -DATTN_BM=%d -DATTN_BN=%d "
           "-DATTN_WARPS=%d -DATTN_STAGES=%d",
           tile.warps + 4 * producer, tile.bn,
           type == ATTN_F16    ? 1
           : type == ATTN_BF16 ? 2
                               : 3,
           d, dv, tile.bm, tile.bn, tile.warps, tile.stages);
    if (sums) {
        define_backward(&grad, sums, groups);
    }
    if (producer) {
        printf(" -DATTN_PRODUCER=1");
    }
    for (int i = sums || multistage ? 9 : 8; i < argc && status == 0; i++) {
        status = feature(argv[i], sums > 0, argv[7]);
    }
    printf("\n");
    return status;
}
