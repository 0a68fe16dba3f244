/* ptx_tensor.c: the model of TMA: boxes of a tensor to shared memory and back, PTX ISA 9.0, 5.5,
   9.7.9.27.

   Who calls it: ptx.c's table; ptx_mbarrier.c when nobody can go on. The description is that of
   lib/gpu.h's `describe`: address, n[0..3], st[0..2], box[0..3], bytes of an element. Rows of a box
   are 128 bytes, one after the other, with 128-byte swizzle: byte x of the box stands at

       x ^ (x >> 7 & 7) << 4        16-byte chunk c of row r at c ^ (r % 8)

   A box lands when nobody can go on without (async=late), at its issue (early), or either. The
   device's memory is read when it lands. A box that is stored is read at once; until its thread
   waits for that, nobody may write there. */
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

/* What of a row of a box is inside of the tensor: `bytes` at `at`, `skip` bytes into the row. */
typedef struct inside {
    uint64_t at;
    size_t skip, bytes;
} inside;

static inside row_inside(const uint64_t *w, const int32_t first[AXES], uint32_t row) {
    const int64_t at[AXES] = {first[0], first[1] + (int64_t)(row % w[BOX + 1]),
                              first[2] + (int64_t)(row / w[BOX + 1] % w[BOX + 2]),
                              first[3] + (int64_t)(row / w[BOX + 1] / w[BOX + 2])};
    const int64_t element = (int64_t)w[ELEMENT], n = (int64_t)w[N];
    const int64_t begin = at[0] < 0 ? 0 : at[0];
    const int64_t past = at[0] + ROW / element < n ? at[0] + ROW / element : n;
    inside in = {.at = w[ADDRESS] + (uint64_t)(begin * element)};
    int is = begin < past;
    for (int i = 1; i < AXES; i++) {
        is &= (uint64_t)at[i] < w[N + i];
        in.at += (uint64_t)at[i] * w[ST + i - 1];
    }
    in.skip = is ? (size_t)((begin - at[0]) * element) : 0;
    in.bytes = is ? (size_t)((past - begin) * element) : 0;
    return in;
}

/* Row `row` of the box, its chunks moved; what is outside of the tensor is 0. */
static void land_row(const ptx_box *box, unsigned char *to, uint32_t row) {
    const inside in = row_inside(box->word, box->from, row);
    unsigned char data[ROW] = {0};
    if (in.bytes) {
        memcpy(data + in.skip, (const void *)(uintptr_t)in.at, in.bytes);
        attn__emu_loaded(in.bytes);
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

static void check_box(int me, const void *map, unsigned shared) {
    const char *const fault = (uintptr_t)map % 64 ? "it is at no multiple of 64" : wrong(map);
    if (fault) {
        attn__emu_fault(me, "copies a box by a description of which %s", fault);
    }
    if (shared % 1024 != 0) {
        attn__emu_fault(me, "copies a box at %u of shared memory, no multiple of 1024", shared);
    }
}

void attn__ptx_tensor_load(unsigned to, const void *map, unsigned barrier, const int from[4]) {
    ptx_state *const s = attn__ptx_state();
    ptx_mbarrier *const b = attn__ptx_mbarrier(s, barrier);
    const int me = attn__emu_thread();
    check_box(me, map, to);
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

/* -- Stores ------------------------------------------------------------------------------------ */

static ptx_store *store_place(ptx_state *s) {
    if (s->n_stores == s->store_room) {
        const int room = s->store_room ? 2 * s->store_room : 16;
        ptx_store *const store = realloc(s->store, (size_t)room * sizeof *store);
        if (!store) {
            attn__emu_fault(attn__emu_thread(), "finds no memory for its stores");
        }
        s->store = store;
        s->store_room = room;
    }
    return &s->store[s->n_stores++];
}

void attn__ptx_tensor_store(const void *map, unsigned from, const int to[4]) {
    ptx_state *const s = attn__ptx_state();
    const int me = attn__emu_thread();
    check_box(me, map, from);
    const uint32_t rows = rows_of(map);
    const unsigned char *const data = attn__emu_lend(me, from, rows * ROW);
    for (uint32_t i = 0; i < rows; i++) {
        const inside in = row_inside(map, to, i);
        unsigned char row[ROW];
        for (uint32_t c = 0; c < ROW; c += 16) {
            memcpy(row + c, data + i * ROW + (c ^ (i & 7) << 4), 16);
        }
        if (in.bytes) {
            memcpy((void *)(uintptr_t)in.at, row + in.skip, in.bytes);
            attn__emu_stored(in.bytes);
        }
    }
    *store_place(s) = (ptx_store){.from = from, .bytes = rows * ROW, .thread = me};
}

void attn__ptx_store_commit(void) {
    ptx_state *const s = attn__ptx_state();
    for (int i = 0; i < s->n_stores; i++) {
        s->store[i].closed |= s->store[i].thread == attn__emu_thread();
    }
}

void attn__ptx_store_wait_read(void) {
    ptx_state *const s = attn__ptx_state();
    int left = 0;
    for (int i = 0; i < s->n_stores; i++) {
        const ptx_store *const store = &s->store[i];
        if (store->closed && store->thread == attn__emu_thread()) {
            attn__emu_lent(store->thread, store->from, store->bytes);
        } else {
            s->store[left++] = *store;
        }
    }
    s->n_stores = left;
}
