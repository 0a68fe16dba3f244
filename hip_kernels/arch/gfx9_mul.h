/* gfx9_mul.h: products of tiles, operands from registers and shared memory.

   Who includes it: gfx9.h. */
#ifndef ATTN_GFX9_MUL_H
#define ATTN_GFX9_MUL_H

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

/* The same an element at a time in f32, which keeps subnormals; b is multiplied by `up`. */
DEV void mul_exact(float d[16], const u32 *a, const u32 *b, float up) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        const u32 x = opaque(a[i]), y = opaque(b[i]);
        mfma_32x32x2_f32(d, float_of_f16(x & 0xffff), float_of_f16(y & 0xffff) * up);
        mfma_32x32x2_f32(d, float_of_f16(x >> 16), float_of_f16(y >> 16) * up);
    }
}

/* -- s = q k ----------------------------------------------------------------------------------- */
/* A read of shared memory runs GFX9_AHEAD reads ahead of the products that want it:

       read 0 .. AHEAD-1 | products 0, read AHEAD | products 1, read AHEAD+1 | ...            */
DEV void qk_plain(tile_s *s, const tile_q *q, u32 from, int how) {
    enum { N = ATTN_BN / 32, READS = K_CHUNKS / 2 * N };
    b128 k[GFX9_AHEAD];
    UNROLL
    for (int at = 0; at < READS + GFX9_AHEAD; at++) {
        const int i = at - GFX9_AHEAD;
        b128 *const place = &k[at % GFX9_AHEAD];
        if (i >= 0) {
            lift_up(place->w, 4, how);
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(s->x[r] + i % N * 16, place->w, q->w[r] + 4 * (i / N));
            }
        }
        if (at < READS) {
            *place = shared_load_b128(from + read_at(at % N, at / N, K_CHUNKS));
        }
        order_here();
    }
}

DEV void qk_exact(tile_s *s, const tile_q *q, u32 from) {
    UNROLL
    for (int i = 0; i < K_CHUNKS / 2; i++) {
        UNROLL
        for (int n = 0; n < ATTN_BN / 32; n++) {
            const b128 k = shared_load_b128(from + read_at(n, i, K_CHUNKS));
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_exact(s->x[r] + n * 16, k.w, q->w[r] + 4 * i, 1);
            }
        }
    }
}

DEV void tile_qk(tile_s *s, const tile_q *q, int what, int stage) {
    const u32 from = stage_at(what, stage);
    const int how = lift_told(what, stage), exact = how == LIFT_EXACT || q->how == LIFT_EXACT;
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = 0;
        }
    }
    if (exact) {
        qk_exact(s, q, from);
    } else {
        qk_plain(s, q, from, how);
    }
    if (GFX9_LIFTS) {
        const float down = lift_down(q->how) * (exact ? 1 : lift_down(how));
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            UNROLL
            for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
                s->x[r][c] *= down;
            }
        }
    }
}

/* -- o += p v ---------------------------------------------------------------------------------- */
/* Backward's numbers may be NaN of any bits; pack_bf16_away wants those it keeps. */
DEV float p_number(float x) {
    return !ATTN_BACKWARD || x == x ? x : float_of(0x7fc00000u);
}
DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (int c = 0; c < TILE_COLS(ATTN_BN); c += 4 / P_BYTES) {
            const float *const x = s->x[r] + c;
            p->w[r][c * P_BYTES / 4] =
                P_BYTES == 4             ? bits_of(x[0])
                : ATTN_TYPE == ATTN_BF16 ? pack_bf16_away(p_number(x[0]), p_number(x[1]))
                                         : pack_f16(x[0], x[1]);
        }
    }
}

/* 16 bits: 16 keys with 32 columns at a time. */
DEV void pv_turned(tile_o *o, const tile_p *p, u32 v) {
    enum { N = ATTN_DV / 32, READS = ATTN_BN / 16 * N };
    b128 x[GFX9_AHEAD];
    UNROLL
    for (int at = 0; at < READS + GFX9_AHEAD; at++) {
        const int i = at - GFX9_AHEAD;
        b128 *const place = &x[at % GFX9_AHEAD];
        if (i >= 0) {
            lift_up(place->w, 4, LIFT_UP);
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(o->x[r] + i % N * 16, place->w, p->w[r] + 4 * (i / N));
            }
        }
        if (at < READS) {
            *place = shared_load_b128(v + read_at(at % N, at / N, ATTN_BN / 8));
        }
        order_here();
    }
}

DEV void pv_exact(tile_o *o, const tile_p *p, u32 v) {
    UNROLL
    for (int i = 0; i < ATTN_BN / 16; i++) {
        UNROLL
        for (int n = 0; n < ATTN_DV / 32; n++) {
            const b128 x = shared_load_b128(v + read_at(n, i, ATTN_BN / 8));
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_exact(o->x[r] + n * 16, x.w, p->w[r] + 4 * i, TILE_O_SCALE);
            }
        }
    }
}

/* 16 bits with p in f32. */
DEV void pv_f32(tile_o *o, const tile_p *p, u32 v) {
    UNROLL
    for (int i = 0; i < ATTN_BN / 16; i++) {
        UNROLL
        for (int n = 0; n < ATTN_DV / 32; n++) {
            const b128 x = shared_load_b128(v + read_at(n, i, ATTN_BN / 8));
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                UNROLL
                for (int j = 0; j < 8; j++) {
                    const u32 y = opaque(x.w[j / 2]);
                    mfma_32x32x2_f32(o->x[r] + n * 16, float_of_f16(j % 2 ? y >> 16 : y & 0xffff),
                                     float_of(p->w[r][8 * i + j]));
                }
            }
        }
    }
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
                    v + v_element_at(tile_col(4 * i + j), n * 32 + lane_id() % 32));
            }
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                mul_chunk(o->x[r] + n * 16, x, p->w[r] + 4 * i);
            }
        }
    }
}

/* Where chips lift, o is lifted by TILE_O_SCALE throughout; the epilogue divides. */
DEV void tile_pv(tile_o *o, const tile_p *p, int what, int stage) {
    const u32 v = turned_at(what, stage);
    const int how = lift_told(what, stage);
    if (ATTN_TYPE == ATTN_F32) {
        pv_plain(o, p, v);
    } else if (GFX9_SUMS_F32) {
        pv_f32(o, p, v);
    } else if (GFX9_LIFTS && how != LIFT_UP) {
        pv_exact(o, p, v);
    } else {
        pv_turned(o, p, v);
    }
}

#endif
