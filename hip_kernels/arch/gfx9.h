/* gfx9.h: the contract of core/tile.h by 32x32 matrix instructions of waves of 64 lanes.

   Who includes it: gfx90a.h and gfx942.h, which say what the chips do not share.

   Scores are computed transposed, S' = K Q', so that all scores of a lane belong to one query row:

                         32 rows                      lane l: row l % 32, g = l / 32
                   +-----------------+                element c: key 8 (c / 4) + 4 g + c % 4
       32 keys     | S' accumulator  |
                   +-----------------+                P' needs no move: elements 4j..4j+3, rounded,
                         |  rounded                   are keys 8j + 4g + 0..3, which is what the
                         v                            product with 8 keys wants of lane l
                   +-----------------+
       DV columns  | O' += V' P'     |                element c: column 8 (c / 4) + 4 g + c % 4
                   +-----------------+

   A product with 8 (f32: 2) of D, or of the keys, takes of either half g of the lanes 4 (1) of
   them; which, is free as long as both operands agree. So that one read of 16 bytes serves:

       K  [key][D], f32 and 16 bits   lane: key l % 32, 16-byte chunk 2i + g of the row: the next
                                      two (16 bits) or four (f32) products; q alike, in registers
       V  16 bits: [column][keys], transposed on its way in; 16 keys lie in the order
                   0-3 8-11 4-7 12-15, so that chunk 2i + g has keys 16i + 4g + 0..3 and + 8
          f32:     [key][column], a read of one element each

   Chunks are swizzled: a row's chunk c stands at c ^ swizzle(row), so that eight lanes that read
   chunk c of eight rows meet in no bank.

   q goes from memory to registers; k and v through registers (ring_hold) to shared memory. Rows that
   may not be read 16 bytes at a time are copied element by element when they should land. */
#ifndef ATTN_GFX9_H
#define ATTN_GFX9_H

#define TILE_ROWS    (ATTN_BM / ATTN_WARPS / 32)
#define TILE_COLS(n) ((n) / 2)

/* Of 8 keys a lane has 4: those of two calls of dropout's generator. */
#define TILE_DROP_CALLS   2
#define TILE_DROP_CALL(c) ((c) / 2 % 2)

#if ATTN_BM % (32 * ATTN_WARPS) || ATTN_BN % 32 || ATTN_D % 32 || ATTN_DV % 32
#error "ATTN_BM: a multiple of 32 times ATTN_WARPS; ATTN_BN, ATTN_D, ATTN_DV: of 32"
#endif

enum {
    CHUNK = 16 / ATTN_BYTES,           /* elements of 16 bytes */
    K_CHUNKS = ATTN_D / CHUNK,         /* of a row of k (and q) */
    K_BYTES = ATTN_BN * ATTN_D * ATTN_BYTES,
    V_BYTES = ATTN_BN * ATTN_DV * ATTN_BYTES,
    V_AT = ATTN_STAGES * K_BYTES,
    /* A lane takes units of v: 4 keys of V_WIDTH columns (16 bits), a chunk (f32). */
    V_WIDE = ATTN_BN / 4 * (ATTN_DV / 8) >= ATTN_THREADS,
    V_WIDTH = ATTN_TYPE == ATTN_F32 || !V_WIDE ? 4 : 8,
    V_UNITS = ATTN_BN * ATTN_DV / V_WIDTH / (ATTN_TYPE == ATTN_F32 ? 1 : 4),
    V_WORDS = ATTN_TYPE == ATTN_F32 ? 4 : 2 * V_WIDTH, /* of a unit */
    Q_EACH = TILE_ROWS * K_CHUNKS / 2, /* chunks of q, of k, units of v that a lane takes */
    K_EACH = (ATTN_BN * K_CHUNKS + ATTN_THREADS - 1) / ATTN_THREADS,
    V_EACH = (V_UNITS + ATTN_THREADS - 1) / ATTN_THREADS,
    HOLD_QK = 4 * (Q_EACH > K_EACH ? Q_EACH : K_EACH),
    HOLD = HOLD_QK > V_EACH * V_WORDS ? HOLD_QK : V_EACH * V_WORDS
};
#define ATTN_SHARED_BYTES (ATTN_STAGES * (K_BYTES + V_BYTES))

typedef struct tile_s {
    float x[TILE_ROWS][TILE_COLS(ATTN_BN)];
} tile_s;
typedef struct tile_o {
    float x[TILE_ROWS][TILE_COLS(ATTN_DV)];
} tile_o;
typedef struct tile_q {
    u32 w[TILE_ROWS][K_CHUNKS * 2]; /* chunk 2i + g at 4i */
} tile_q;
typedef struct tile_p {
    u32 w[TILE_ROWS][TILE_COLS(ATTN_BN) * ATTN_BYTES / 4];
} tile_p;
typedef struct ring_hold {
    u32 w[HOLD];
    tile_rows from; /* of rows that are read element by element, in ring_land */
    int row;
} ring_hold;

/* -- Who holds what ---------------------------------------------------------------------------- */
DEV int tile_row(int r) {
    return (warp_id() * TILE_ROWS + r) * 32 + lane_id() % 32;
}
DEV int tile_col(int c) {
    return c / 4 * 8 + lane_id() / 32 * 4 + c % 4;
}

/* The two lanes of a row are l and l ^ 32. */
DEV float row_max(float x) {
    return max_num(x, lane_xor(x, 32));
}
DEV float row_sum(float x) {
    return x + lane_xor(x, 32);
}
DEV int warp_any(int x) {
    return warp_ballot(x) != 0;
}
DEV float warp_sum(float x) {
    UNROLL
    for (int mask = 1; mask < 64; mask *= 2) {
        x += lane_xor(x, mask);
    }
    return x;
}

/* -- Where a chunk of a row lies --------------------------------------------------------------- */
/* Eight rows of 128 bytes or a multiple differ in row % 8; of 64 bytes or an odd multiple, pairs of
   rows fill 128 bytes and differ in row / 2 % 4. */
DEV u32 chunk_at(int row, int chunk, int chunks) {
    const int swizzle = chunks % 8 == 0 ? row % 8 : row / 2 % 4;
    return (u32)(row * chunks + (chunk ^ swizzle)) * 16;
}
/* Chunk 2i + g of row 32n + l % 32: what lane l reads. The lane's part is apart from the constants,
   so that few registers hold all places. */
DEV u32 read_at(int n, int i, int chunks) {
    const int period = chunks % 8 == 0 ? 4 : 2, row = lane_id() % 32, half = lane_id() / 32;
    return chunk_at(row, i % period * 2 + half, chunks) +
           (u32)(n * 32 * chunks + i / period * period * 2) * 16;
}

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

/* A tile of k or v comes in pieces of PIECE_WORDS: of k (and v in f32) a chunk of a row; of v in 16
   bits V_WIDTH columns of a row, four of which, of keys 4a..4a+3, are a unit. */
#define PIECE_WORDS(what) ((what) == RING_K || ATTN_TYPE == ATTN_F32 ? 4 : V_WIDTH / 2)
#define PIECES(what)      ((what) == RING_K ? K_EACH : V_EACH * V_WORDS / PIECE_WORDS(what))

typedef struct piece {
    int row, col, taken;
} piece;

DEV piece piece_of(int what, int n) {
    piece x;
    if (what == RING_K || ATTN_TYPE == ATTN_F32) {
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

/* `words` words at `at` of the buffer. */
DEV void load_wide(u32 *w, int words, u64 buffer, u32 at) {
    if (words == 4) {
        const b128 x = buffer_load_b128(buffer, at);
        UNROLL
        for (int i = 0; i < 4; i++) {
            w[i] = x.w[i];
        }
    } else {
        const b64 x = buffer_load_b64(buffer, at);
        w[0] = x.w[0];
        w[1] = x.w[1];
    }
}

/* Rows may be read 16 bytes at a time, at offsets of 31 bits. */
DEV int rows_wide(const tile_rows *from) {
    return from->vec && (u64)from->n <= (1u << 30) / ATTN_BN;
}

DEV void load_kv(ring_hold *h, int what, const tile_rows *from, int row) {
    const u64 first = from->data + (u64)(row * from->n);
    const int words = PIECE_WORDS(what);
    h->from = *from;
    h->row = row;
    if (rows_wide(from)) {
        UNROLL
        for (int n = 0; n < PIECES(what); n++) {
            const piece x = piece_of(what, n);
            const u32 at = (u32)x.row * (u32)from->n + (u32)(x.col * ATTN_BYTES);
            const int seen = x.taken && row + x.row < from->rows && x.col < from->cols;
            load_wide(h->w + n * words, words, first, seen ? at : BUFFER_NOWHERE);
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

/* -- Landing: registers to shared memory ------------------------------------------------------- */
DEV b128 words_4(const u32 *w) {
    const b128 x = {{w[0], w[1], w[2], w[3]}};
    return x;
}

DEV void land_k(const ring_hold *h, u32 to) {
    UNROLL
    for (int k = 0; k < K_EACH; k++) {
        const int i = thread_id() + k * ATTN_THREADS;
        if (ATTN_BN * K_CHUNKS % ATTN_THREADS == 0 || i < ATTN_BN * K_CHUNKS) {
            shared_store_b128(to + chunk_at(i / K_CHUNKS, i % K_CHUNKS, K_CHUNKS),
                              words_4(h->w + 4 * k));
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

DEV void land_v(const ring_hold *h, u32 to) {
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
        }
    }
}

/* Where element (row, col) of a tile lies. */
DEV u32 element_at(int what, int row, int col) {
    if (what == RING_K) {
        return chunk_at(row, col / CHUNK, K_CHUNKS) + (u32)(col % CHUNK * ATTN_BYTES);
    }
    if (ATTN_TYPE == ATTN_F32) {
        return (u32)(row * ATTN_DV + col) * 4;
    }
    return chunk_at(col, quad_chunk(row / 4), ATTN_BN / 8) + quad_half(row / 4) +
           (u32)(row % 4 * 2);
}

/* Word by word, each of its two elements (f32: one) for itself. */
DEV void land_elements(const ring_hold *h, int what, u32 to) {
    const int width = what == RING_K ? ATTN_D : ATTN_DV, each = 4 / ATTN_BYTES;
    const int down = what == RING_V ? each : 1, across = what == RING_V ? 1 : each;
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
        shared_store_u32(to + element_at(what, row, col), word);
    }
}

DEV void ring_land(ring_hold *h, int what, int stage) {
    const u32 to = (u32)(what == RING_K ? stage * K_BYTES : V_AT + stage * V_BYTES);
    if (what == RING_Q) {
        return;
    }
    if (!rows_wide(&h->from)) {
        land_elements(h, what, to);
    } else if (what == RING_K) {
        land_k(h, to);
    } else {
        land_v(h, to);
    }
}

/* What has landed has landed: the compiler waits for registers, ring_sync for shared memory. */
DEV void ring_wait(int younger) {
    (void)younger;
}
DEV void ring_sync(void) {
    block_sync();
}

DEV void tile_q_of(tile_q *q, const ring_hold *h) {
    wait_loads();
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int i = 0; i < K_CHUNKS * 2; i++) {
            q->w[r][i] = h->w[r * K_CHUNKS * 2 + i];
        }
    }
}

/* -- Multiplying ------------------------------------------------------------------------------- */
/* n reads of shared memory, each for `each` products: how far reads run ahead of products. */
enum { AHEAD = 4, EACH = TILE_ROWS * 4 / (ATTN_TYPE == ATTN_F32 ? 1 : 2) };
#define ORDER(n)                                                                                   \
    do {                                                                                           \
        order_shared_loads(AHEAD);                                                                 \
        UNROLL                                                                                     \
        for (int order = 0; order < (n); order++) {                                                \
            order_products(EACH);                                                                  \
            order_shared_loads(1);                                                                 \
        }                                                                                          \
    } while (0)

/* d += a b over one chunk of each lane. */
DEV void mul_chunk(float d[16], const u32 a[4], const u32 b[4]) {
#if ATTN_TYPE == ATTN_F16
    mfma_32x32x8_f16(d, a, b);
    mfma_32x32x8_f16(d, a + 2, b + 2);
#elif ATTN_TYPE == ATTN_BF16
    mfma_32x32x8_bf16(d, a, b);
    mfma_32x32x8_bf16(d, a + 2, b + 2);
#else
    UNROLL
    for (int i = 0; i < 4; i++) {
        mfma_32x32x2_f32(d, float_of(a[i]), float_of(b[i]));
    }
#endif
}

DEV void tile_qk(tile_s *s, const tile_q *q, int stage) {
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = 0;
        }
    }
    UNROLL
    for (int i = 0; i < K_CHUNKS / 2; i++) {
        UNROLL
        for (int n = 0; n < ATTN_BN / 32; n++) {
            const b128 k = shared_load_b128((u32)(stage * K_BYTES) + read_at(n, i, K_CHUNKS));
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(s->x[r] + n * 16, k.w, q->w[r] + 4 * i);
            }
        }
    }
    ORDER(K_CHUNKS / 2 * (ATTN_BN / 32));
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int c = 0; c < TILE_COLS(ATTN_BN); c += 4 / ATTN_BYTES) {
            const float *const x = s->x[r] + c;
            p->w[r][c * ATTN_BYTES / 4] = ATTN_TYPE == ATTN_F32    ? bits_of(x[0])
                                          : ATTN_TYPE == ATTN_BF16 ? pack_bf16_away(x[0], x[1])
                                                                   : pack_f16(x[0], x[1]);
        }
    }
}

/* 16 bits: 16 keys with 32 columns at a time. */
DEV void pv_turned(tile_o *o, const tile_p *p, u32 v) {
    UNROLL
    for (int i = 0; i < ATTN_BN / 16; i++) {
        UNROLL
        for (int n = 0; n < ATTN_DV / 32; n++) {
            const b128 x = shared_load_b128(v + read_at(n, i, ATTN_BN / 8));
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(o->x[r] + n * 16, x.w, p->w[r] + 4 * i);
            }
        }
    }
    ORDER(ATTN_BN / 16 * (ATTN_DV / 32));
}

/* f32: 8 keys with 32 columns at a time; lane's key of product j is tile_col(4i + j). */
DEV void pv_plain(tile_o *o, const tile_p *p, u32 v) {
    UNROLL
    for (int i = 0; i < ATTN_BN / 8; i++) {
        UNROLL
        for (int n = 0; n < ATTN_DV / 32; n++) {
            u32 x[4];
            UNROLL
            for (int j = 0; j < 4; j++) {
                x[j] = shared_load_u32(
                    v + (u32)(tile_col(4 * i + j) * ATTN_DV + n * 32 + lane_id() % 32) * 4);
            }
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(o->x[r] + n * 16, x, p->w[r] + 4 * i);
            }
        }
    }
}

DEV void tile_pv(tile_o *o, const tile_p *p, int stage) {
    const u32 v = (u32)(V_AT + stage * V_BYTES);
    if (ATTN_TYPE == ATTN_F32) {
        pv_plain(o, p, v);
    } else {
        pv_turned(o, p, v);
    }
}

#endif
