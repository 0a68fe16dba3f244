/* gfx9_ring.h: tiles on their way: memory, registers, shared memory.

   Who includes it: gfx9.h. q stays in registers. Rows of k and v that may be read 16 bytes at a
   time are held in registers between ring_load and ring_land; others are read in ring_land. */
#ifndef ATTN_GFX9_RING_H
#define ATTN_GFX9_RING_H

/* -- Loads: memory to registers ---------------------------------------------------------------- */
DEV u32 load_element(u64 at) {
    return ATTN_BYTES == 4 ? load_u32(at) : load_u16(at);
}

/* `words` words of the row at `at` from column `col` on; 0 from column `cols` on. */
DEV void load_words(u32 *w, int words, const tile_rows *from, u64 at, int col, int cols) {
    UNROLL
    for (int i = 0; i < words; i++) {
        u32 x = 0;
        UNROLL
        for (int e = 0; e < 4 / ATTN_BYTES; e++) {
            const int c = col + i * 4 / ATTN_BYTES + e;
            const u32 y = load_element(c < cols ? at + (u64)c * ATTN_BYTES : from->data);
            x |= (c < cols ? y : 0) << 16 * e;
        }
        w[i] = x;
    }
}

/* The lane's chunks of row `n` of q. */
DEV void load_q_row(u32 *w, const tile_rows *from, int n) {
    const u32 pack = (u32)from->pack, row = (u32)n / pack, head = (u32)n % pack;
    const u64 at = from->data + (u64)(row * from->n + head * from->h);
    const int cols = n < from->rows ? from->cols : 0;
    if (from->vec) {
        UNROLL
        for (int i = 0; i < K_CHUNKS / 2; i++) {
            const int col = (2 * i + lane_id() / 32) * CHUNK;
            const b128 x = load_b128(col < cols ? at + (u64)col * ATTN_BYTES : from->data);
            UNROLL
            for (int j = 0; j < 4; j++) {
                w[4 * i + j] = col < cols ? x.w[j] : 0;
            }
        }
    } else {
        UNROLL
        for (int i = 0; i < K_CHUNKS / 2; i++) {
            load_words(w + 4 * i, 4, from, at, (2 * i + lane_id() / 32) * CHUNK, cols);
        }
    }
}

DEV void load_q(ring_hold *h, const tile_rows *from, int row) {
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        load_q_row(h->w + r * K_CHUNKS * 2, from, row + tile_row(r));
    }
}

/* A tile comes in pieces of PIECE_WORDS: a chunk of a row; where it is turned, V_WIDTH columns of a
   row, four of which, of keys 4a..4a+3, are a unit. */
#define IS_TURNED(what)   (ATTN_TYPE != ATTN_F32 && (ATTN_BACKWARD || (what) == RING_V))
#define PIECE_WORDS(what) (IS_TURNED(what) ? V_WIDTH / 2 : 4)
#define PIECES(what)                                                                               \
    (IS_TURNED(what) || (what) == RING_V ? V_EACH * V_WORDS / PIECE_WORDS(what) : K_EACH)

typedef struct piece {
    int row, col, taken;
} piece;

DEV piece piece_of(int what, int n) {
    piece x;
    if (!IS_TURNED(what)) {
        const int chunks = what == RING_K ? K_CHUNKS : ATTN_DV / CHUNK;
        const int i = thread_id() + n * ATTN_THREADS;
        x.row = i / chunks;
        x.col = i % chunks * CHUNK;
        x.taken = i < ATTN_BN * chunks;
    } else {
        const int i = thread_id() + n / 4 * ATTN_THREADS;
        x.row = i % (ATTN_BN / 4) * 4 + n % 4;
        x.col = i / (ATTN_BN / 4) * V_WIDTH;
        x.taken = i < V_UNITS;
    }
    return x;
}

/* `words` words at `at` of the buffer of `bytes`. */
DEV void load_wide(u32 *w, int words, u64 buffer, u32 bytes, u32 at) {
    if (words == 4) {
        const b128 x = buffer_load_b128(buffer, bytes, at);
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[i] = x.w[i];
        }
    } else {
        const b64 x = buffer_load_b64(buffer, bytes, at);
        w[0] = x.w[0];
        w[1] = x.w[1];
    }
}

/* Rows may be read 16 bytes at a time and follow one another, at offsets of 31 bits: then a tile is
   a buffer, and what lies behind its last row is 0 without a look. */
DEV int rows_wide(const tile_rows *from) {
    return from->vec && from->n >= from->cols * ATTN_BYTES && from->n <= (1 << 30) / ATTN_BN;
}

DEV void load_kv(ring_hold *h, int what, const tile_rows *from, int row) {
    const u64 first = from->data + (u64)(row * from->n);
    const int words = PIECE_WORDS(what), left = from->rows - row;
    h->from = *from;
    h->row = row;
    if (rows_wide(from)) {
        const u32 bytes = (u32)(left < 0 ? 0 : left < ATTN_BN ? left : ATTN_BN) * (u32)from->n;
        UNROLL
        for (int n = 0; n < PIECES(what); n++) {
            const piece x = piece_of(what, n);
            const u32 at = (u32)x.row * (u32)from->n + (u32)(x.col * ATTN_BYTES);
            const int seen = x.taken && x.col < from->cols;
            load_wide(h->w + n * words, words, first, bytes, seen ? at : BUFFER_NOWHERE);
        }
    }
}

DEV void ring_load(ring_hold *h, int what, int stage, const tile_rows *from, int row) {
    (void)stage;
    if (what == RING_Q) {
        load_q(h, from, row);
    } else {
        load_kv(h, what, from, row);
    }
}

/* Which layouts backward reads of a ring. */
#define HAS_ROWS(what)   ((what) == RING_K || HAS_V)
#define HAS_TURNED(what) (ATTN_SUMS & ((what) == RING_K ? 1 : 2))

/* -- Landing: registers to shared memory ------------------------------------------------------- */
DEV b128 words_4(const u32 *w) {
    const b128 x = {{w[0], w[1], w[2], w[3]}};
    return x;
}

DEV void land_k(const ring_hold *h, u32 to, lift_seen *seen) {
    UNROLL
    for (int k = 0; k < K_EACH; k++) {
        const int i = thread_id() + k * ATTN_THREADS;
        if (ATTN_BN * K_CHUNKS % ATTN_THREADS == 0 || i < ATTN_BN * K_CHUNKS) {
            shared_store_b128(to + chunk_at(i / K_CHUNKS, i % K_CHUNKS, K_CHUNKS),
                              words_4(h->w + 4 * k));
            lift_see(seen, h->w + 4 * k, 4);
        }
    }
}

/* Where keys 4 quad .. 4 quad + 3 lie in a column of v (16 bits): 0-3 8-11 4-7 12-15. */
DEV int quad_chunk(int quad) {
    return quad / 4 * 2 + quad % 2;
}
DEV u32 quad_half(int quad) {
    return (u32)(quad / 2 % 2 * 8);
}

/* 4 keys x V_WIDTH columns, turned: 4 keys of one column are 8 bytes. Sixteen lanes write at once:
   one column of 64 keys or more, or two of 32, which then must differ in their lowest bit to lie in
   different banks, so every other lane group takes the columns of a pair the other way round. */
DEV void land_v_turned(const u32 *w, u32 to, int quad, int col) {
    const int swap = ATTN_BN == 32 ? col / V_WIDTH % 2 : 0;
    const u32 even = swap ? PERM_HIGH : PERM_LOW, odd = swap ? PERM_LOW : PERM_HIGH;
    UNROLL
    for (int c = 0; c < V_WIDTH; c++) {
        const u32 which = c % 2 ? odd : even;
        const u32 *const x = w + c / 2;
        const b64 y = {{perm_b32(x[V_WIDTH / 2], x[0], which),
                        perm_b32(x[V_WIDTH / 2 * 3], x[V_WIDTH / 2 * 2], which)}};
        shared_store_b64(
            to + chunk_at(col + (c ^ swap), quad_chunk(quad), ATTN_BN / 8) + quad_half(quad), y);
    }
}

/* The same unit as it came, to rows of chunks. */
DEV void land_v_rows(const u32 *w, u32 to, int quad, int col) {
    UNROLL
    for (int e = 0; e < 4; e++) {
        const u32 at = to + chunk_at(quad * 4 + e, col / 8, K_CHUNKS) + (u32)(col % 8 * 2);
        const u32 *const x = w + e * V_WIDTH / 2;
        if (V_WIDTH == 8) {
            shared_store_b128(at, words_4(x));
        } else {
            const b64 y = {{x[0], x[1]}};
            shared_store_b64(at, y);
        }
    }
}

/* Backward, 16 bits: both layouts, where they are wanted. */
DEV void land_both(const ring_hold *h, int what, int stage, lift_seen *seen) {
    UNROLL
    for (int k = 0; k < V_EACH; k++) {
        const int i = thread_id() + k * ATTN_THREADS;
        const int quad = i % (ATTN_BN / 4), col = i / (ATTN_BN / 4) * V_WIDTH;
        const u32 *const w = h->w + k * V_WORDS;
        if (V_UNITS % ATTN_THREADS == 0 || i < V_UNITS) {
            if (HAS_ROWS(what)) {
                land_v_rows(w, stage_at(what, stage), quad, col);
            }
            if (HAS_TURNED(what)) {
                land_v_turned(w, turned_at(what, stage), quad, col);
            }
            lift_see(seen, w, V_WORDS);
        }
    }
}

DEV void land_v(const ring_hold *h, u32 to, lift_seen *seen) {
    UNROLL
    for (int k = 0; k < V_EACH; k++) {
        const int i = thread_id() + k * ATTN_THREADS;
        const u32 *const w = h->w + k * V_WORDS;
        if (V_UNITS % ATTN_THREADS == 0 || i < V_UNITS) {
            if (ATTN_TYPE == ATTN_F32) {
                shared_store_b128(to + (u32)i * 16, words_4(w));
            } else {
                land_v_turned(w, to, i % (ATTN_BN / 4), i / (ATTN_BN / 4) * V_WIDTH);
            }
            lift_see(seen, w, V_WORDS);
        }
    }
}

/* Where element (row, col) of a tile lies, as rows and turned. */
DEV u32 row_element_at(int what, int row, int col) {
    return what == RING_K || ATTN_BACKWARD
               ? chunk_at(row, col / CHUNK, K_CHUNKS) + (u32)(col % CHUNK * ATTN_BYTES)
               : v_element_at(row, col);
}
DEV u32 turned_element_at(int row, int col) {
    return chunk_at(col, quad_chunk(row / 4), ATTN_BN / 8) + quad_half(row / 4) +
           (u32)(row % 4 * 2);
}

/* Word by word, each of its two elements (f32: one) for itself; turned: they are of a column. */
DEV void land_elements(const ring_hold *h, int what, u32 to, int turned, lift_seen *seen) {
    const int width = what == RING_K ? ATTN_D : ATTN_DV, each = 4 / ATTN_BYTES;
    const int down = turned ? each : 1, across = turned ? 1 : each;
    ROLLED
    for (int i = thread_id(); i < ATTN_BN * width / each; i += ATTN_THREADS) {
        const int row = i / (width / across) * down, col = i % (width / across) * across;
        u32 word = 0;
        UNROLL
        for (int e = 0; e < each; e++) {
            const int r = h->row + row + (down > 1 ? e : 0), c = col + (across > 1 ? e : 0);
            if (r < h->from.rows && c < h->from.cols) {
                word |= load_element(h->from.data + (u64)(r * h->from.n + c * ATTN_BYTES))
                        << 16 * e;
            }
        }
        shared_store_u32(to + (turned ? turned_element_at(row, col)
                                      : row_element_at(what, row, col)),
                         word);
        lift_see(seen, &word, 1);
    }
}

/* Rows that cannot be read 16 bytes at a time. */
DEV void land_slow(const ring_hold *h, int what, int stage, lift_seen *seen) {
    if (!ATTN_BACKWARD || ATTN_TYPE == ATTN_F32) {
        land_elements(h, what, stage_at(what, stage), IS_TURNED(what), seen);
        return;
    }
    if (HAS_ROWS(what)) {
        land_elements(h, what, stage_at(what, stage), 0, seen);
    }
    if (HAS_TURNED(what)) {
        land_elements(h, what, turned_at(what, stage), 1, seen);
    }
}

DEV void ring_land(ring_hold *h, int what, int stage) {
    const u32 to = stage_at(what, stage);
    lift_seen seen = lift_nothing();
    if (what == RING_Q) {
        return;
    }
    if (!rows_wide(&h->from)) {
        land_slow(h, what, stage, &seen);
    } else if (TURNS) {
        land_both(h, what, stage, &seen);
    } else if (what == RING_K || ATTN_BACKWARD) {
        land_k(h, to, &seen);
    } else {
        land_v(h, to, &seen);
    }
    lift_tell(&seen, what, stage);
}

/* What has landed has landed: the compiler waits for registers, ring_sync for shared memory. */
DEV void ring_wait(int younger) {
    (void)younger;
}
DEV void ring_sync(void) {
    block_sync();
}

DEV void tile_q_of(tile_q *q, const ring_hold *h, int stage) {
    lift_seen seen = lift_nothing();
    (void)stage;
    wait_loads();
    lift_see(&seen, h->w, Q_EACH * 4);
    q->how = lift_how(lift_bits(&seen));
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int i = 0; i < K_CHUNKS * 2; i++) {
            q->w[r][i] = h->w[r * K_CHUNKS * 2 + i];
        }
        lift_up(q->w[r], K_CHUNKS * 2, q->how);
    }
}

#endif
