/* target.c: the chips that kernels are written for, and which tile suits a plan.

   Who calls it: drivers and tools/kernel_job.c (names), gpu_fwd.c and gpu_bwd.c (tiles). One table
   of tiles per chip stands in target_*.c:

       element bytes, head size up to  ->  the largest tile;   few rows: half of it, half of that
                                                          what would spill: half of its keys */
#include "target.h"

#include <stdio.h>
#include <string.h>

static const attn__target *const chips[] = {&attn__sm80, &attn__compute80, &attn__sm90a,
                                            &attn__gfx90a, &attn__gfx942};
enum { CHIPS = sizeof chips / sizeof chips[0] };

const attn__target *attn__target_at(int i) {
    return i < CHIPS ? chips[i] : NULL;
}

const attn__target *attn__target_find(const char *name) {
    for (int i = 0; i < CHIPS; i++) {
        if (strcmp(chips[i]->name, name) == 0) {
            return chips[i];
        }
    }
    return NULL;
}

void attn__target_names(const char *compiler, char names[ATTN__TARGET_NAMES]) {
    names[0] = 0;
    for (int i = 0; i < CHIPS; i++) {
        if (!compiler || strcmp(chips[i]->compiler, compiler) == 0) {
            const size_t n = strlen(names);
            snprintf(names + n, ATTN__TARGET_NAMES - n, "%s%s", n ? ", " : "", chips[i]->name);
        }
    }
}

/* Where there are few rows, fewer warps; rows of a warp stay as many. */
static attn__tile_size for_rows(attn__tile_size tile, int64_t rows) {
    while (tile.warps > 1 && rows <= tile.bm / 2) {
        tile.bm /= 2;
        tile.warps /= 2;
    }
    return tile;
}

attn__tile_size attn__target_tile(const attn__target *target, int type, int d, int dv,
                                  int64_t rows) {
    const attn__tile_row *row = target->tiles;
    while (row->bytes != attn__type_bytes(type) || row->size < (d > dv ? d : dv)) {
        row++;
    }
    return for_rows(row->tile, rows);
}

attn__tile_size attn__target_producer(const attn__target *target, int type, int d, int dv,
                                      int64_t rows, enum attn__tile_kind kind) {
    const attn__tile_size none = {0};
    const attn__tile_row *row = kind == ATTN__TILE_PLAIN ? target->plain
                                : kind == ATTN__TILE_FEW ? target->few
                                                         : target->producer;
    if (!row || attn__type_bytes(type) != row->bytes) {
        return none;
    }
    while (row->size < (d > dv ? d : dv)) {
        row++;
    }
    attn__tile_size tile = row->tile;
    while (tile.bm > 64 && rows <= tile.bm - 64) { /* groups of 4 warps and 64 rows */
        tile.bm -= 64;
        tile.warps -= 4;
    }
    return tile;
}

static attn__grad_size grad_of_groups(const attn__target *target, int type, int d) {
    attn__grad_size size = {.split = 1};
    const struct attn__group_row *row = target->groups;
    if (row && attn__type_bytes(type) == 2) {
        while (row->size < d) {
            row++;
        }
        size.fused = row->fused;
        size.split = row->split;
    }
    return size;
}

attn__grad_size attn__target_grad(const attn__target *target, int type, int d, int64_t rows,
                                  int groups) {
    if (groups) {
        return grad_of_groups(target, type, d);
    }
    const struct attn__grad_row *row = target->grads;
    while (row->bytes != attn__type_bytes(type) || row->size < d) {
        row++;
    }
    attn__grad_size size = row->of;
    size.tile = for_rows(size.tile, rows);
    return size;
}

int attn__tile_smaller(attn__tile_size *tile, int least) {
    const int smaller = tile->bn > least;
    int half = least;
    while (half * 2 < tile->bn) {
        half *= 2;
    }
    tile->bn = smaller ? half : tile->bn;
    return smaller;
}

int attn__grad_least(const attn__target *target, int d, int fused, int groups) {
    if (groups || (fused && d % 64 != 0)) {
        return 64;
    }
    return target->lanes == 32 && !fused ? 16 : 32;
}
