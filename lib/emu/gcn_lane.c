/* gcn_lane.c: what lanes of gfx90a and gfx942 exchange, how shared memory serves them, and the
   instructions of one lane whose result is not that of C's operators.

   Who calls it: gcn.c, for all lanes of a wave at once or for one. Each follows its entry in the
   instruction set manuals of CDNA2 and CDNA3, unless it says otherwise. */
#include "gcn.h"

#include <math.h>
#include <string.h>

#include "../attn_int.h"

/* -- Between lanes ----------------------------------------------------------------------------- */
void attn__gcn_bpermute(uint32_t *to, const uint32_t *at, const uint32_t *x) {
    for (int l = 0; l < GCN_LANES; l++) {
        to[l] = x[at[l] / 4 % GCN_LANES];
    }
}

void attn__gcn_permute(uint32_t *to, const uint32_t *at, const uint32_t *x) {
    memset(to, 0, GCN_LANES * sizeof *to);
    for (int l = 0; l < GCN_LANES; l++) {
        to[at[l] / 4 % GCN_LANES] = x[l];
    }
}

/* A row is 16 lanes. */
int attn__gcn_dpp_from(int control, int l) {
    int in_row = l & 15, row = l & ~15, by = control & 15;

    if (control >= 0 && control <= 0xff) { /* quad_perm: two bits for each lane of four */
        return (l & ~3) | (control >> l % 4 * 2 & 3);
    }
    switch (control & ~15) {
    case 0x100: /* row_shl */
        return by == 0 ? -2 : in_row + by < 16 ? l + by : -1;
    case 0x110: /* row_shr */
        return by == 0 ? -2 : in_row >= by ? l - by : -1;
    case 0x120: /* row_ror */
        return by == 0 ? -2 : row | ((in_row - by) & 15);
    case 0x150: /* row_newbcast: one lane of the row to all of it */
        return row | by;
    default: break;
    }
    switch (control) {
    case 0x140: return row | (15 - in_row);     /* row_mirror */
    case 0x141: return (l & ~7) | (7 - l % 8);  /* row_half_mirror */
    case 0x142: return row == 0 ? -1 : row - 1; /* row_bcast:15, a row's last to the next row */
    case 0x143: return l < 32 ? -1 : 31;        /* row_bcast:31 */
    default: return -2;
    }
}

/* -- Shared memory ----------------------------------------------------------------------------- */
/* 32 banks of 4 bytes serve 32 lanes of 4 bytes at once, 16 of 8, 8 of 16: neighbours, but for
   16-byte reads, of which lanes 0..3 go with 20..23, 4..7 with 16..19, 8..11 with 28..31, 12..15
   with 24..27, and so on from 32. Source: Composable Kernel's page on bank conflicts. */
void attn__gcn_phases(uint8_t order[GCN_LANES], int bytes, int write) {
    static const uint8_t pairs[8] = {0, 20, 4, 16, 8, 28, 12, 24};

    for (int l = 0; l < GCN_LANES; l++) {
        int split = bytes == 16 && !write;
        order[l] = (uint8_t)(split ? (l & 32) + pairs[l / 4 % 8] + l % 4 : l);
    }
}

/* -- One lane ---------------------------------------------------------------------------------- */
uint32_t attn__gcn_perm(uint32_t a, uint32_t b, uint32_t select) {
    uint64_t both = (uint64_t)a << 32 | b;
    uint32_t x = 0;

    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 8 * i & 255;
        uint32_t byte = s < 8     ? (uint32_t)(both >> 8 * s & 255)
                        : s < 12  ? (both >> (16 * (s - 8) + 15) & 1 ? 0xff : 0)
                        : s == 12 ? 0
                                  : 0xff;
        x |= byte << 8 * i;
    }
    return x;
}

/* The nearest f16, one step back to zero if it lies beyond x. */
static uint32_t f16_toward_zero(float x) {
    uint16_t half = attn__f32_to_f16(x);

    if (isfinite(x) && fabsf(attn__f16_to_f32(half)) > fabsf(x)) {
        half--;
    }
    return half;
}

uint32_t attn__gcn_cvt_pkrtz(float lo, float hi) {
    return f16_toward_zero(lo) | f16_toward_zero(hi) << 16;
}

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* One of the two neighbours of y, both at most 1 ulp off: which one is y's own bits' affair, so
   that nothing can rest on the better one. */
static float near(double y) {
    float x = (float)y;
    uint64_t bits;

    if (!isfinite(y) || !isfinite(x) || (double)x == y) {
        return flushed(x);
    }
    memcpy(&bits, &y, 8);
    if ((bits * 0x9e3779b97f4a7c15u) >> 63) {
        float other = nextafterf(x, (double)x < y ? INFINITY : -INFINITY);
        x = isfinite(other) ? other : x;
    }
    return flushed(x);
}

float attn__gcn_exp2(float x) { return near(exp2(flushed(x))); }
float attn__gcn_rcp(float x) { return near(1.0 / flushed(x)); }
