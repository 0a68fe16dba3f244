/* gcn.h: models of the instructions of gfx90a and gfx942: what 64 lanes do together.

   Who calls it: lib/emu/isa/gcn.h through the emulator's table, tests/emu_gcn_test.cc. Sources: the
   CDNA2 and CDNA3 instruction set manuals, the lane layouts of AMD's matrix instruction calculator,
   and for what no manual says (the order and rounding of sums, bank phases) published measurements,
   each named where it is modelled. */
#ifndef ATTN_EMU_GCN_H
#define ATTN_EMU_GCN_H

#include <stdint.h>

enum { GCN_LANES = 64 };
enum { GCN_90A = 0x90a, GCN_942 = 0x942 }; /* chips, as ATTN_EMU names them */
enum { GCN_F16, GCN_BF16, GCN_F32 };       /* of a matrix instruction's operands */

/* -- gcn_mfma.c: d (n x n) += a (n x k) b (k x n), f32 sums ------------------------------------ */
/* n is 32 or 16; what lane l holds of an operand of 16 bits is 2 registers, of f32 one:

       a[l][..]  row l % n, columns w (l / n) ..        w = 4 elements (16 bits), 1 (f32)
       b[l][..]  column l % n, rows w (l / n) ..        k = w * 64 / n
       d[l][r]   column l % n, row r % 4 + 4 (l / n) + 4 (64 / n) (r / 4)      n * n / 64 of them */
typedef struct gcn_mfma {
    int chip, type, n;
    const uint32_t *a[GCN_LANES], *b[GCN_LANES];
    float *d[GCN_LANES];
} gcn_mfma;
void attn__gcn_mfma(const gcn_mfma *x);

/* -- gcn_lane.c: between lanes; x[l] is what lane l brings, to[l] what it gets ----------------- */
/* ds_bpermute_b32: lane l gets x of lane at[l] / 4 mod 64. */
void attn__gcn_bpermute(uint32_t *to, const uint32_t *at, const uint32_t *x);
/* ds_permute_b32: lane l sends x to lane at[l] / 4 mod 64; of two that send to one the higher lane
   wins; who is sent nothing gets 0. */
void attn__gcn_permute(uint32_t *to, const uint32_t *at, const uint32_t *x);
/* The lane that lane l reads under a DPP control word; -1 none, -2 no such control. */
int attn__gcn_dpp_from(int control, int l);

/* The lanes in the order in which shared memory serves them, 128 bytes' worth at a time, for
   accesses of 4, 8 or 16 bytes a lane. */
void attn__gcn_phases(uint8_t order[GCN_LANES], int bytes, int write);

/* -- gcn_lane.c: one lane ---------------------------------------------------------------------- */
/* v_perm_b32: byte i of the result by byte i of select: 0..3 of b, 4..7 of a, 8..11 the sign of b's
   low and high half, a's low and high half, 12 0x00, above 0xff. */
uint32_t attn__gcn_perm(uint32_t a, uint32_t b, uint32_t select);
uint32_t attn__gcn_cvt_pkrtz(float lo, float hi); /* two f16, toward zero */
/* v_exp_f32, v_rcp_f32: at most 1 ulp off; subnormals, come or go, are 0. */
float attn__gcn_exp2(float x);
float attn__gcn_rcp(float x);

#endif
