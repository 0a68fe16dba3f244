/* ptx_tensor.c: the model of TMA: boxes of a tensor to shared memory, PTX ISA 9.0, 5.5, 9.7.9.27.

   Who calls it: ptx.c's table; ptx_mbarrier.c when nobody can go on. The description is that of
   lib/gpu.h's `describe`: address, n[0..3], st[0..2], box[0..3], bytes of an element. Rows of a box
   are 128 bytes, one after the other, with 128-byte swizzle: byte x of the box stands at

       x ^ (x >> 7 & 7) << 4        16-byte chunk c of row r at c ^ (r % 8)

   A box lands when nobody can go on without (async=late), at its issue (early), or either. The
   device's memory is read when it lands. */
#include "ptx_state.h"

#include "../gpu.h"

#include <stdlib.h>
#include <string.h>

enum { ADDRESS, N, ST = 5, BOX = 8, ELEMENT = 12, ROW = 128, AXES = 4 };

/* -- Description ------------------------------------------------------------------------------- */

/* What is wrong with it; NULL: nothing. */
static const char *wrong(const uint64_t *w) {
    if (w[ADDRESS] % 16 != 0 || w[ADDRESS] < 4096) {
        return "the tensor's address is no multiple of 16";
    }
    for (int i = 0; i < AXES; i++) {
        if (w[N + i] < 1 || w[N + i] > 1ull << 32) {
            return "an extent is not 1..2^32";
        }
        if (w[BOX + i] < 1 || w[BOX + i] > 256) {
            return "an extent of the box is not 1..256";
        }
        if (i > 0 && w[N + i] > 1 && (w[ST + i - 1] % 16 != 0 || w[ST + i - 1] >= 1ull << 40)) {
            return "a stride is no multiple of 16 below 2^40";
        }
    }
    return w[BOX] * w[ELEMENT] == ROW ? NULL : "a row of the box is not 128 bytes";
}

int attn__ptx_describe(const attn__boxes *box, uint64_t word[16]) {
    memset(word, 0, 16 * sizeof *word);
    word[ADDRESS] = (uint64_t)(uintptr_t)box->data;
    word[ELEMENT] = 2;
    for (int i = 0; i < AXES; i++) {
        word[N + i] = (uint64_t)box->n[i];
        word[BOX + i] = (uint64_t)box->box[i];
        if (i > 0) {
            word[ST + i - 1] = (uint64_t)box->st[i - 1];
        }
    }
    return wrong(word) == NULL;
}

/* -- A box ------------------------------------------------------------------------------------- */

static uint32_t rows_of(const uint64_t *w) {
    return (uint32_t)(w[BOX + 1] * w[BOX + 2] * w[BOX + 3]);
}

/* Row `row` of the box, its chunks moved; what is outside of the tensor is 0. */
static void land_row(const ptx_box *box, unsigned char *to, uint32_t row) {
    const uint64_t *const w = box->word;
    const int64_t at[AXES] = {box->from[0], box->from[1] + (int64_t)(row % w[BOX + 1]),
                              box->from[2] + (int64_t)(row / w[BOX + 1] % w[BOX + 2]),
                              box->from[3] + (int64_t)(row / w[BOX + 1] / w[BOX + 2])};
    unsigned char data[ROW] = {0};
    uint64_t from = w[ADDRESS];
    int inside = 1;
    for (int i = 1; i < AXES; i++) {
        inside &= (uint64_t)at[i] < w[N + i];
        from += (uint64_t)at[i] * w[ST + i - 1];
    }
    const int64_t element = (int64_t)w[ELEMENT], n = (int64_t)w[N];
    const int64_t first = at[0] < 0 ? 0 : at[0];
    const int64_t past = at[0] + ROW / element < n ? at[0] + ROW / element : n;
    if (inside && first < past) {
        const size_t bytes = (size_t)((past - first) * element);
        memcpy(data + (first - at[0]) * element,
               (const void *)(uintptr_t)(from + (uint64_t)(first * element)), bytes);
        attn__emu_loaded(bytes);
    }
    for (uint32_t i = 0; i < ROW; i += 16) {
        memcpy(to + (i ^ (row & 7) << 4), data + i, 16);
    }
}

static void land(const ptx_box *box) {
    const uint32_t rows = rows_of(box->word);
    unsigned char *const to = attn__emu_landed(box->to, rows * ROW);
    for (uint32_t i = 0; i < rows; i++) {
        land_row(box, to + i * ROW, i);
    }
    attn__ptx_mbarrier_bytes(box->barrier, (int)(rows * ROW), box->thread);
}

static ptx_box *place(ptx_state *s) {
    if (s->n_boxes == s->room) {
        const int room = s->room ? 2 * s->room : 16;
        ptx_box *const box = realloc(s->box, (size_t)room * sizeof *box);
        if (!box) {
            attn__emu_fault(attn__emu_thread(), "finds no memory for its copies");
        }
        s->box = box;
        s->room = room;
    }
    return &s->box[s->n_boxes++];
}

void attn__ptx_tensor_load(unsigned to, const void *map, unsigned barrier, const int from[4]) {
    ptx_state *const s = attn__ptx_state();
    ptx_mbarrier *const b = attn__ptx_mbarrier(s, barrier);
    const int me = attn__emu_thread();
    const char *const fault = (uintptr_t)map % 64 ? "it is at no multiple of 64" : wrong(map);
    if (fault) {
        attn__emu_fault(me, "copies a box by a description of which %s", fault);
    }
    if (to % 1024 != 0) {
        attn__emu_fault(me, "copies a box to shared memory at %u, no multiple of 1024", to);
    }
    if (!b->fenced) {
        attn__emu_fault(me, "copies a box for mbarrier %u, behind whose init is no fence", barrier);
    }
    const ptx_box box = {.word = map,
                         .barrier = b,
                         .to = to,
                         .thread = me,
                         .from = {from[0], from[1], from[2], from[3]}};
    attn__emu_claim(me, to, rows_of(map) * ROW, b->number, b->phase + 1);
    if (attn__emu_early()) {
        land(&box);
    } else {
        *place(s) = box;
    }
}

/* Lands one for whose barrier somebody waits: the oldest, or with async=random any. */
int attn__ptx_tensor_idle(ptx_state *s) {
    const int begin = attn__emu_early() ? (int)(attn__emu_random() >> 33) : 0;
    for (int n = 0; n < s->n_boxes; n++) {
        const int i = (int)(((unsigned)begin + (unsigned)n) % (unsigned)s->n_boxes);
        const ptx_box box = s->box[i];
        uint64_t waits = 0;
        for (int w = 0; w < PTX_WARPS; w++) {
            waits |= box.barrier->queue.lanes[w];
        }
        if (waits) {
            s->n_boxes--;
            memmove(&s->box[i], &s->box[i + 1], (size_t)(s->n_boxes - i) * sizeof box);
            land(&box);
            return 1;
        }
    }
    return 0;
}
