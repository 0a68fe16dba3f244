/* ptx.h: instructions of NVIDIA chips, one a function.

   Who calls it: arch/sm.h, sm80*.h; the names of the first part, which gcn.h has, too, everywhere.
   Source: PTX ISA 9.0, the section named beside each. The emulator's model of it:
   lib/emu/isa/ptx.h, with the same names (a test compares).

   Device memory is addressed by u64, shared memory by u32: bytes from the block's first. */
#ifndef ATTN_PTX_H
#define ATTN_PTX_H

#define ISA_ASM asm volatile

typedef struct b128 {
    u32 w[4];
} __attribute__((aligned(16))) b128;

/* -- Where am I -------------------------------------------------------------------------------- */
DEV int thread_id(void) { return (int)threadIdx.x; }
DEV int lane_id(void) { return (int)(threadIdx.x & 31u); }
/* The same in all lanes, and the compiler knows it. */
DEV int warp_id(void) { return __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 5), 0); }
DEV i64 block_id(void) { return (i64)blockIdx.x; }
DEV i64 grid_size(void) { return (i64)gridDim.x; }

/* -- Meeting ----------------------------------------------------------------------------------- */
DEV void block_sync(void) { __syncthreads(); }
DEV void warp_sync(void) { __syncwarp(); }
DEV float lane_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEV u64 warp_ballot(int x) { return (u64)__ballot_sync(0xffffffffu, x); }

/* -- Arithmetic -------------------------------------------------------------------------------- */
DEV u32 bits_of(float x) { return __float_as_uint(x); }
DEV float float_of(u32 x) { return __uint_as_float(x); }
DEV float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/* Part of the instruction that x goes into. */
DEV float abs_f32(float x) { return fabsf(x); }
/* x = x a + b of both, x += y of both: two instructions here, one in gcn.h. */
DEV void fma_two(float x[2], float a, float b) {
    x[0] = fma_f32(x[0], a, b);
    x[1] = fma_f32(x[1], a, b);
}
DEV void add_two(float x[2], const float y[2]) {
    x[0] += y[0];
    x[1] += y[1];
}
/* NaN in either: NaN. 9.7.3 max.NaN */
DEV float max_nan(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
/* NaN in one: the other. */
DEV float max_num(float a, float b) { return fmaxf(a, b); }
/* 2^x, at most 2 ulp, subnormals are 0. 9.7.3 ex2.approx.ftz */
DEV float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* 1 / x, at most 1 ulp. 9.7.3 rcp.approx.ftz */
DEV float rcp_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float sqrt_f32(float x) { return __fsqrt_rn(x); }
DEV float div_f32(float a, float b) { return __fdiv_rn(a, b); }
/* The same, without a branch, where b is from 2^-60 to 2^60 and a not above it. */
DEV float div_near(float a, float b) {
    const float y = rcp_fast(b), z = fma_f32(fma_f32(-b, y, 1.0f), y, y), q = a * z;
    return fma_f32(fma_f32(-b, q, a), z, q);
}
/* a / b, b a constant from 2^-60 to 2^60, y = 1 / b rounded: without a branch; but for subnormal
   results rounded to nearest (Markstein 1990). */
DEV float div_const(float a, float b, float y) {
    const float q = a * y, z = fma_f32(fma_f32(-b, q, a), y, q);
    return (bits_of(q) & 0x7fffffffu) == 0x7f800000u ? q : z;
}
/* The lowest bit that is set, counted from 0; x is not 0. */
DEV int first_bit(u64 x) { return __ffsll((i64)x) - 1; }
/* x, of which the compiler forgets how it was computed: what follows from it is computed anew where
   it is needed and does not stay in registers. No instruction. */
#define ISA_FORGETS 1
DEV u32 forget(u32 x) {
    ISA_ASM("" : "+r"(x));
    return x;
}
DEV u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
DEV u64 mul_high_u64(u64 a, u64 b) { return __umul64hi(a, b); }

/* -- Rounding: two floats to the halves of a word, `lo` in the low one, to nearest even -------- */
DEV u32 pack_f16(float lo, float hi) {
    u32 w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}
DEV u32 pack_bf16(float lo, float hi) {
    u32 w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}
DEV float float_of_f16(u32 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x));
    return y;
}
DEV float float_of_bf16(u32 x) { return __uint_as_float(x << 16); }

/* -- Device memory ----------------------------------------------------------------------------- */
#define GLOBAL(type, at) (*(type *)__cvta_global_to_generic(at))
/* A word that may be read where nothing is wanted; p: into the kernel's parameters. */
DEV u64 readable(const void *p) { return (u64)p; }
DEV u32 load_u8(u64 at) { return GLOBAL(const u8, at); }
DEV u32 load_u16(u64 at) { return GLOBAL(const u16, at); }
DEV u32 load_u32(u64 at) { return GLOBAL(const u32, at); }
DEV u64 load_u64(u64 at) { return GLOBAL(const u64, at); }
DEV b128 load_b128(u64 at) { return GLOBAL(const b128, at); }
DEV void store_u16(u64 at, u32 x) { GLOBAL(u16, at) = (u16)x; }
DEV void store_u32(u64 at, u32 x) { GLOBAL(u32, at) = x; }
DEV void store_b128(u64 at, b128 x) {
    GLOBAL(uint4, at) = make_uint4(x.w[0], x.w[1], x.w[2], x.w[3]);
}
/* As one act, in any order with others. 9.7.13.6 red */
DEV void atomic_add_u64(u64 at, u64 x) { atomicAdd((u64 *)at, x); }
DEV void atomic_or_u32(u64 at, u32 x) { atomicOr((u32 *)at, x); }
/* The number before, which is one more then. 9.7.13.5 atom */
DEV u32 atomic_next_u32(u64 at) { return atomicAdd((u32 *)at, 1u); }
/* Waits until the number in memory is x: what its writer did before is done. 9.7.9.8 ld.acquire */
DEV void wait_u32(u64 at, u32 x) {
    u32 now;
    do {
        ISA_ASM("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(at) : "memory");
    } while (now != x);
}
/* x, behind all that the block's threads did before they met last. 9.7.9.12 st.release */
DEV void store_release_u32(u64 at, u32 x) {
    ISA_ASM("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}
/* ISA_ADDS floats, each as one act; `at` is a multiple of their size. 9.7.13.6 red, its .v4 */
#if ATTN_HAS_ADD_4
#define ISA_ADDS 4
DEV void atomic_add_f32(u64 at, const float *x) {
    ISA_ASM("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x[0]),
            "f"(x[1]), "f"(x[2]), "f"(x[3])
            : "memory");
}
#else
#define ISA_ADDS 1
/* Not atomicAdd, whose address may lie in shared memory, too: that asks at each. */
DEV void atomic_add_f32(u64 at, const float *x) {
    ISA_ASM("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at), "f"(*x) : "memory");
}
#endif

/* -- Shared memory ----------------------------------------------------------------------------- */
extern __shared__ __align__(1024) u8 attn_shared[];
DEV u32 shared_at(u32 at) { return (u32)__cvta_generic_to_shared(attn_shared) + at; }
DEV void shared_store_u16(u32 at, u32 x) {
    ISA_ASM("st.shared.u16 [%0], %1;" ::"r"(shared_at(at)), "h"((u16)x) : "memory");
}
DEV void shared_store_u32(u32 at, u32 x) {
    ISA_ASM("st.shared.u32 [%0], %1;" ::"r"(shared_at(at)), "r"(x) : "memory");
}
DEV void shared_store_b128(u32 at, b128 x) {
    ISA_ASM("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_at(at)), "r"(x.w[0]),
            "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
            : "memory");
}
DEV u32 shared_load_u32(u32 at) {
    u32 x;
    ISA_ASM("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(shared_at(at)) : "memory");
    return x;
}
DEV b128 shared_load_b128(u32 at) {
    b128 x;
    ISA_ASM("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
            : "r"(shared_at(at))
            : "memory");
    return x;
}

/* -- Asynchronous copies, 9.7.9.25 cp.async ---------------------------------------------------- */
/* 16 bytes from device to shared memory, of which the first `bytes` (0..16) are read and the rest
   are 0. Both addresses are multiples of 16. */
DEV void cp_async_16(u32 to, u64 from, int bytes) {
    ISA_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from),
            "r"(bytes)
            : "memory");
}
/* Closes a group of this thread's copies. */
DEV void cp_async_commit(void) { ISA_ASM("cp.async.commit_group;" ::: "memory"); }
/* Waits until all but the n youngest groups of this thread have landed; n is a constant. */
#define cp_async_wait(n) ISA_ASM("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* -- Matrices in shared memory, 9.7.14.5 ldmatrix ---------------------------------------------- */
/* Four 8x8 matrices of 16 bits; lanes 8j..8j+7 give the rows of matrix j. Lane l gets of each the
   elements 2(l%4), 2(l%4)+1 of row l/4. */
DEV void ldmatrix_x4(u32 x[4], u32 at) {
    ISA_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(shared_at(at))
            : "memory");
}
/* The same, each matrix transposed: elements (2(l%4), l/4) and (2(l%4)+1, l/4). */
DEV void ldmatrix_x4_trans(u32 x[4], u32 at) {
    ISA_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(shared_at(at))
            : "memory");
}

/* -- Matrix products, 9.7.14.5 mma: d (16 x 8, f32) += a (16 x k) b (k x 8) -------------------- */
#define ISA_MMA_16(name, type)                                                                     \
    DEV void name(float *d0, float *d1, float *d2, float *d3, const u32 a[4], u32 b0, u32 b1) {    \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                     \
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
                : "+f"(*d0), "+f"(*d1), "+f"(*d2), "+f"(*d3)                                       \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                   \
    }
ISA_MMA_16(mma_16x8x16_f16, "f16")
ISA_MMA_16(mma_16x8x16_bf16, "bf16")
/* Operands are f32 of which the tensor core reads the upper 19 bits. */
DEV void mma_16x8x8_tf32(float *d0, float *d1, float *d2, float *d3, const u32 a[4], u32 b0,
                         u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(*d0), "+f"(*d1), "+f"(*d2), "+f"(*d3)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
