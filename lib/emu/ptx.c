/* ptx.c: the model of the PTX instructions of hip_kernels/isa/ptx.h, but for matrix products, and
   the table of all (those of sm_90a: ptx_state.h).

   Who calls it: a compiled kernel through the table at the end (isa/ptx.h). Sections are those of
   PTX ISA 9.0. */
#include "ptx_int.h"
#include "ptx_state.h"

#include "../attn_int.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { LANES = 32 };
static const uint32_t nan_bits = 0x7fffffffu; /* the only NaN that these instructions make */

/* -- Arithmetic, 9.7.3, 9.7.3.21 ex2, 9.7.3.13 rcp: .ftz takes and gives no subnormals --------- */

static float max_nan(float a, float b) {
    if (isnan(a) || isnan(b)) {
        return emu_float(nan_bits);
    }
    return a > b || (a == b && !signbit(a)) ? a : b; /* +0 > -0 */
}

static float max_num(float a, float b) {
    if (isnan(a) || isnan(b)) {
        return isnan(a) && isnan(b) ? emu_float(nan_bits) : isnan(a) ? b : a;
    }
    return max_nan(a, b);
}

static float exp2_fast(float x) {
    return isnan(x) ? emu_float(nan_bits) : emu_flush(exp2f(emu_flush(x)));
}

static float rcp_fast(float x) {
    return isnan(x) ? emu_float(nan_bits) : emu_flush(1.0f / emu_flush(x));
}

/* -- cvt, 9.7.9.21: to nearest even, above the largest number infinity ------------------------- */

static unsigned f16_of(float x) {
    return isnan(x) ? 0x7fffu : attn__f32_to_f16(x);
}
static unsigned bf16_of(float x) {
    return isnan(x) ? 0x7fffu : attn__f32_to_bf16(x);
}
static unsigned pack_f16(float lo, float hi) {
    return f16_of(hi) << 16 | f16_of(lo);
}
static unsigned pack_bf16(float lo, float hi) {
    return bf16_of(hi) << 16 | bf16_of(lo);
}

static float float_of_f16(unsigned x) {
    const float y = attn__f16_to_f32((uint16_t)x);
    return isnan(y) ? emu_float(nan_bits) : y;
}

/* -- Waiting for another block, which runs on another thread of the host or has ended ---------- */

enum { WAIT_SECONDS = 60 };
static void wait_u32(unsigned long long at, unsigned x) {
    const uint32_t *const word = (const void *)(uintptr_t)at;
    const time_t begun = time(NULL);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != x) {
        if (time(NULL) - begun > WAIT_SECONDS) {
            attn__emu_fault(attn__emu_warp_first(), "waits for %u, which never comes", x);
        }
        sched_yield();
    }
}

/* -- cp.async, 9.7.9.25 ------------------------------------------------------------------------ */

static void cp_async_16(unsigned to, unsigned long long from, int bytes) {
    attn__emu_copy(to, from, 16, bytes);
}

/* -- ldmatrix, 9.7.14.5.15 --------------------------------------------------------------------- */

typedef struct matrix_load {
    uint32_t at;
    uint32_t *x;
} matrix_load;

/* Lane 8j + r has the address of row r of matrix j. */
static void rows_of(void *const *lane, uint16_t m[4][8][8]) {
    uint32_t at[LANES];
    for (int l = 0; l < LANES; l++) {
        at[l] = ((const matrix_load *)lane[l])->at;
        memcpy(m[l / 8][l % 8], attn__emu_shared(attn__emu_warp_first() + l, at[l], 16, 0), 16);
    }
    attn__emu_banks(at, LANES, 16, 0);
}

static void ldmatrix(void *const *lane) {
    uint16_t m[4][8][8];
    rows_of(lane, m);
    for (int l = 0; l < LANES; l++) {
        for (int j = 0; j < 4; j++) {
            const uint16_t *const two = &m[j][l / 4][l % 4 * 2];
            ((const matrix_load *)lane[l])->x[j] = (uint32_t)two[1] << 16 | two[0];
        }
    }
}

static void ldmatrix_trans(void *const *lane) {
    uint16_t m[4][8][8];
    rows_of(lane, m);
    for (int l = 0; l < LANES; l++) {
        for (int j = 0; j < 4; j++) {
            const int column = l / 4, row = l % 4 * 2;
            ((const matrix_load *)lane[l])->x[j] =
                (uint32_t)m[j][row + 1][column] << 16 | m[j][row][column];
        }
    }
}

static void ldmatrix_x4(unsigned *x, unsigned at) {
    matrix_load l = {.at = at, .x = x};
    attn__emu_meet("ldmatrix.x4", ldmatrix, &l);
}
static void ldmatrix_x4_trans(unsigned *x, unsigned at) {
    matrix_load l = {.at = at, .x = x};
    attn__emu_meet("ldmatrix.x4.trans", ldmatrix_trans, &l);
}

/* -- Banks: a warp's access is taken in phases of as many lanes as move 128 bytes -------------- */

static void banks(const uint32_t *at, int n, int bytes, int write) {
    const int phase = bytes <= 4 ? LANES : 128 / bytes;
    int least = 0, cycles = 0;
    (void)write;
    for (int i = 0; i < n; i += phase) {
        const int took = attn__emu_phase(at + i, n - i < phase ? n - i : phase, bytes);
        least += took > 0;
        cycles += took;
    }
    attn__emu_access(least, cycles);
}

static const attn_emu_ptx table = {
    .common = {EMU_COMMON, .max_nan = max_nan, .max_num = max_num, .exp2_fast = exp2_fast,
               .rcp_fast = rcp_fast, .pack_f16 = pack_f16, .pack_bf16 = pack_bf16,
               .float_of_f16 = float_of_f16},
    .wait_u32 = wait_u32,
    .cp_async_16 = cp_async_16,
    .cp_async_commit = attn__emu_copy_commit,
    .cp_async_wait = attn__emu_copy_wait,
    .ldmatrix_x4 = ldmatrix_x4,
    .ldmatrix_x4_trans = ldmatrix_x4_trans,
    .mma_f16 = attn__ptx_mma_f16,
    .mma_bf16 = attn__ptx_mma_bf16,
    .mma_tf32 = attn__ptx_mma_tf32,
    .warp_from = attn__ptx_warp_from,
    .registers = attn__ptx_registers,
    .named_sync = attn__ptx_named_sync,
    .named_arrive = attn__ptx_named_arrive,
    .proxy_fence = attn__emu_proxy_fence,
    .mbarrier_init_fence = attn__ptx_mbarrier_init_fence,
    .mbarrier_init = attn__ptx_mbarrier_init,
    .mbarrier_arrive = attn__ptx_mbarrier_arrive,
    .mbarrier_expect = attn__ptx_mbarrier_expect,
    .mbarrier_try_wait = attn__ptx_mbarrier_try_wait,
    .tensor_load = attn__ptx_tensor_load,
    .tensor_store = attn__ptx_tensor_store,
    .store_commit = attn__ptx_store_commit,
    .store_wait_read = attn__ptx_store_wait_read,
    .wgmma_fence = attn__ptx_wgmma_fence,
    .wgmma_commit = attn__ptx_wgmma_commit,
    .wgmma_wait = attn__ptx_wgmma_wait,
    .wgmma = attn__ptx_wgmma,
};

const attn__emu_family attn__emu_ptx = {.lanes = LANES,
                                        .api = &table,
                                        .banks = banks,
                                        .begin = attn__ptx_begin,
                                        .idle = attn__ptx_idle,
                                        .end = attn__ptx_end,
                                        .free = attn__ptx_free};
