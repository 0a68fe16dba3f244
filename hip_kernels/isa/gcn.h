/* gcn.h: instructions of AMD's CDNA chips, one a function.

   Who calls it: arch/gfx9.h and its chips; the names of the first part, which ptx.h has, too,
   everywhere. Source: the CDNA2 and CDNA3 instruction set manuals. The emulator's model of it:
   lib/emu/isa/gcn.h, with the same names (a test compares).

   Device memory is addressed by u64, shared memory by u32: bytes from the block's first. Everything
   is a builtin or plain C, not assembly: the compiler then knows what waits a result needs (a
   matrix product's may not be read for up to 18 cycles), and puts each load's s_waitcnt where its
   value is used. */
#ifndef ATTN_GCN_H
#define ATTN_GCN_H

/* Memory is written as one type and read as another. */
typedef u8 isa_u8 __attribute__((may_alias));
typedef u16 isa_u16 __attribute__((may_alias));
typedef u32 isa_u32 __attribute__((may_alias));
typedef u64 isa_u64 __attribute__((may_alias));
typedef u32 isa_u32x2 __attribute__((ext_vector_type(2), may_alias));
typedef u32 isa_u32x4 __attribute__((ext_vector_type(4), may_alias));
typedef struct b64 {
    u32 w[2];
} __attribute__((aligned(8))) b64;
typedef struct b128 {
    u32 w[4];
} __attribute__((aligned(16))) b128;
#define ISA_DEVICE __attribute__((address_space(1)))

/* -- Where am I -------------------------------------------------------------------------------- */
DEV int thread_id(void) {
    return (int)__builtin_amdgcn_workitem_id_x();
}
DEV int lane_id(void) {
    return thread_id() & 63;
}
/* The same in all lanes, and the compiler knows it. */
DEV int warp_id(void) {
    return __builtin_amdgcn_readfirstlane(thread_id() >> 6);
}
DEV i64 block_id(void) {
    return (i64)__builtin_amdgcn_workgroup_id_x();
}
DEV i64 grid_size(void) {
    return (i64)(__builtin_amdgcn_grid_size_x() / ATTN_THREADS);
}

/* -- Meeting ----------------------------------------------------------------------------------- */
/* s_barrier, after this wave's accesses of shared memory. */
DEV void block_sync(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEV void warp_sync(void) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
DEV u32 bits_of(float x) {
    return __builtin_bit_cast(u32, x);
}
DEV float float_of(u32 x) {
    return __builtin_bit_cast(float, x);
}
/* x, which is the same in all lanes, as the compiler then knows. v_readfirstlane_b32 */
DEV u32 uniform(u32 x) {
    return (u32)__builtin_amdgcn_readfirstlane((int)x);
}
/* x, computed here: what depends on it is not taken out of a loop. No instruction. */
DEV u32 opaque(u32 x) {
    __asm__ volatile("" : "+v"(x));
    return x;
}
/* ds_bpermute_b32: x of lane `lane` (mod 64). */
DEV u32 lane_read(u32 x, int lane) {
    return (u32)__builtin_amdgcn_ds_bpermute(lane << 2, (int)x);
}
DEV float lane_xor(float x, int mask) {
    return float_of(lane_read(bits_of(x), lane_id() ^ mask));
}
DEV u64 warp_ballot(int x) {
    return __builtin_amdgcn_ballot_w64(x != 0);
}

/* -- Arithmetic -------------------------------------------------------------------------------- */
DEV float fma_f32(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
typedef float isa_f32x2 __attribute__((ext_vector_type(2)));
/* Part of the instruction that x goes into. */
DEV float abs_f32(float x) {
    return __builtin_fabsf(x);
}
/* x = x a + b of both. v_pk_fma_f32 */
DEV void fma_two(float x[2], float a, float b) {
    const isa_f32x2 y = {x[0], x[1]}, aa = {a, a}, bb = {b, b};
    const isa_f32x2 z = __builtin_elementwise_fma(y, aa, bb);
    x[0] = z[0];
    x[1] = z[1];
}
/* x += y of both. v_pk_add_f32 */
DEV void add_two(float x[2], const float y[2]) {
    const isa_f32x2 a = {x[0], x[1]}, b = {y[0], y[1]};
    const isa_f32x2 z = a + b;
    x[0] = z[0];
    x[1] = z[1];
}
/* NaN in one: the other. v_max_f32 */
DEV float max_num(float a, float b) {
    return __builtin_fmaxf(a, b);
}
/* NaN in either: NaN. */
DEV float max_nan(float a, float b) {
    return __builtin_isunordered(a, b) ? float_of(0x7fc00000u) : max_num(a, b);
}
/* 2^x, at most 1 ulp, subnormals are 0. v_exp_f32 */
DEV float exp2_fast(float x) {
    return __builtin_amdgcn_exp2f(x);
}
/* 1 / x, at most 1 ulp. v_rcp_f32 */
DEV float rcp_fast(float x) {
    return __builtin_amdgcn_rcpf(x);
}
DEV float sqrt_f32(float x) {
    return __builtin_sqrtf(x);
}
DEV float div_f32(float a, float b) {
    return a / b;
}
/* The same; on other chips without a branch, where b is from 2^-60 to 2^60 and a not above it. */
DEV float div_near(float a, float b) {
    return div_f32(a, b);
}
/* The same; on other chips by y = 1 / b, rounded, where b is a constant from 2^-60 to 2^60. */
DEV float div_const(float a, float b, float y) {
    (void)y;
    return div_f32(a, b);
}
/* The lowest bit that is set, counted from 0; x is not 0. */
DEV int first_bit(u64 x) {
    return __builtin_ctzll(x);
}
/* As in ptx.h, where it spares registers; here there are enough. */
#define ISA_FORGETS 0
DEV u32 forget(u32 x) {
    return x;
}
DEV u32 mul_high(u32 a, u32 b) {
    return (u32)((u64)a * b >> 32);
}
DEV u64 mul_high_u64(u64 a, u64 b) {
    return (u64)((unsigned __int128)a * b >> 64);
}

/* -- Bytes ------------------------------------------------------------------------------------- */
/* v_perm_b32: byte i of the result is byte number `select`'s byte i of low (0..3), high (4..7). */
DEV u32 perm_b32(u32 high, u32 low, u32 select) {
    return __builtin_amdgcn_perm(high, low, select);
}
#define PERM_LOW  0x05040100u /* low halves: that of low, then that of high */
#define PERM_HIGH 0x07060302u

/* -- Two numbers of 16 bits to a word --------------------------------------------------------- */
typedef u16 isa_u16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 isa_f16x2 __attribute__((ext_vector_type(2)));
DEV u32 pk_max_u16(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(isa_u16x2, a),
                                                             __builtin_bit_cast(isa_u16x2, b)));
}
DEV u32 pk_min_u16(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_elementwise_min(__builtin_bit_cast(isa_u16x2, a),
                                                             __builtin_bit_cast(isa_u16x2, b)));
}
DEV u32 pk_sub_u16(u32 a, u32 b) {
    return __builtin_bit_cast(u32, (isa_u16x2)(__builtin_bit_cast(isa_u16x2, a) -
                                               __builtin_bit_cast(isa_u16x2, b)));
}
/* Subnormals count. */
DEV u32 pk_mul_f16(u32 a, u32 b) {
    return __builtin_bit_cast(u32, (isa_f16x2)(__builtin_bit_cast(isa_f16x2, a) *
                                               __builtin_bit_cast(isa_f16x2, b)));
}

/* -- Rounding: two floats to the halves of a word, `lo` in the low one, to nearest even -------- */
DEV u32 pack_f16(float lo, float hi) {
    const u32 a = __builtin_bit_cast(u16, (_Float16)lo);
    const u32 b = __builtin_bit_cast(u16, (_Float16)hi);
    return a | b << 16;
}
DEV u32 isa_bf16(float x) {
    const u32 u = bits_of(x);
    return x != x ? u | 0x400000u : u + 0x7fff + (u >> 16 & 1);
}
DEV u32 pack_bf16(float lo, float hi) {
    return perm_b32(isa_bf16(hi), isa_bf16(lo), PERM_HIGH);
}
/* Ties away from 0, numbers finite: three instructions, where the above takes nine. */
DEV u32 pack_bf16_away(float lo, float hi) {
    return perm_b32(bits_of(hi) + 0x8000, bits_of(lo) + 0x8000, PERM_HIGH);
}
DEV float float_of_f16(u32 x) {
    return (float)__builtin_bit_cast(_Float16, (u16)x);
}
DEV float float_of_bf16(u32 x) {
    return float_of(x << 16);
}

/* -- Device memory ----------------------------------------------------------------------------- */
DEV u32 load_u8(u64 at) {
    return *(const ISA_DEVICE isa_u8 *)at;
}
/* A word that may be read where nothing is wanted: of the kernel's arguments. `p` points to a copy
   of them, which no memory has as long as nobody asks for its address. */
DEV u64 readable(const void *p) {
    (void)p;
    return (u64)__builtin_amdgcn_kernarg_segment_ptr();
}
DEV u32 load_u16(u64 at) {
    return *(const ISA_DEVICE isa_u16 *)at;
}
DEV u32 load_u32(u64 at) {
    return *(const ISA_DEVICE isa_u32 *)at;
}
DEV u64 load_u64(u64 at) {
    return *(const ISA_DEVICE isa_u64 *)at;
}
DEV b128 load_b128(u64 at) {
    return __builtin_bit_cast(b128, *(const ISA_DEVICE isa_u32x4 *)at);
}
DEV void store_u16(u64 at, u32 x) {
    *(ISA_DEVICE isa_u16 *)at = (u16)x;
}
DEV void store_u32(u64 at, u32 x) {
    *(ISA_DEVICE isa_u32 *)at = x;
}
/* As one act, in any order with others. */
DEV void atomic_add_u64(u64 at, u64 x) {
    __hip_atomic_fetch_add((ISA_DEVICE u64 *)at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/* ISA_ADDS floats. global_atomic_add_f32 */
#define ISA_ADDS 1
DEV void atomic_add_f32(u64 at, const float *x) {
    __hip_atomic_fetch_add((ISA_DEVICE float *)at, *x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DEV void atomic_or_u32(u64 at, u32 x) {
    __hip_atomic_fetch_or((ISA_DEVICE u32 *)at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DEV void store_b128(u64 at, b128 x) {
    *(ISA_DEVICE isa_u32x4 *)at = __builtin_bit_cast(isa_u32x4, x);
}

/* Loads through a buffer of `bytes` from `base`, both the same in all lanes, 2^31 at most: lanes
   whose `at` is there or farther (BUFFER_NOWHERE always is) get 0 and touch no memory. */
#define BUFFER_NOWHERE 0x80000000u
DEV __amdgpu_buffer_rsrc_t isa_buffer(u64 base, u32 bytes) {
    const u32 low = (u32)__builtin_amdgcn_readfirstlane((int)base);
    const u32 high = (u32)__builtin_amdgcn_readfirstlane((int)(base >> 32));
    return __builtin_amdgcn_make_buffer_rsrc((void *)((u64)high << 32 | low), 0,
                                             (int)bytes, 0x00027000);
}
DEV b128 buffer_load_b128(u64 base, u32 bytes, u32 at) {
    return __builtin_bit_cast(
        b128,
        __builtin_amdgcn_raw_buffer_load_b128(isa_buffer(base, uniform(bytes)), (int)at, 0, 0));
}
DEV b64 buffer_load_b64(u64 base, u32 bytes, u32 at) {
    return __builtin_bit_cast(
        b64, __builtin_amdgcn_raw_buffer_load_b64(isa_buffer(base, uniform(bytes)), (int)at, 0, 0));
}

/* -- Shared memory ----------------------------------------------------------------------------- */
extern __attribute__((shared, aligned(1024))) u8 attn_shared[];
DEV void shared_store_u16(u32 at, u32 x) {
    *(isa_u16 *)(attn_shared + at) = (u16)x;
}
DEV void shared_store_u32(u32 at, u32 x) {
    *(isa_u32 *)(attn_shared + at) = x;
}
DEV void shared_store_b64(u32 at, b64 x) {
    *(isa_u32x2 *)(attn_shared + at) = __builtin_bit_cast(isa_u32x2, x);
}
DEV void shared_store_b128(u32 at, b128 x) {
    *(isa_u32x4 *)(attn_shared + at) = __builtin_bit_cast(isa_u32x4, x);
}
DEV u32 shared_load_u32(u32 at) {
    return *(const isa_u32 *)(attn_shared + at);
}
DEV b64 shared_load_b64(u32 at) {
    return __builtin_bit_cast(b64, *(const isa_u32x2 *)(attn_shared + at));
}
DEV b128 shared_load_b128(u32 at) {
    return __builtin_bit_cast(b128, *(const isa_u32x4 *)(attn_shared + at));
}

/* -- Matrix products: d (32 x 32, f32) += a (32 x k) b (k x 32) -------------------------------- */
/* Lane l, with i = l % 32 and g = l / 32, holds
       of a:  row i,    columns w g .. w g + w - 1       w = k / 2
       of b:  column i, rows    w g .. w g + w - 1
       of d:  column i, rows    8 (r / 4) + 4 g + r % 4 in d[r]                              */
typedef float isa_f32x16 __attribute__((ext_vector_type(16)));
typedef _Float16 isa_f16x4 __attribute__((ext_vector_type(4)));
typedef short isa_s16x4 __attribute__((ext_vector_type(4)));
DEV isa_f32x16 isa_sums(const float d[16]) {
    isa_f32x16 x;
    UNROLL
    for (int i = 0; i < 16; i++) {
        x[i] = d[i];
    }
    return x;
}
DEV void isa_sums_to(float d[16], isa_f32x16 x) {
    UNROLL
    for (int i = 0; i < 16; i++) {
        d[i] = x[i];
    }
}
DEV b64 isa_half(const u32 x[2]) {
    const b64 y = {{x[0], x[1]}};
    return y;
}
DEV void mfma_32x32x8_f16(float d[16], const u32 a[2], const u32 b[2]) {
    isa_sums_to(d, __builtin_amdgcn_mfma_f32_32x32x8f16(
                       __builtin_bit_cast(isa_f16x4, isa_half(a)),
                       __builtin_bit_cast(isa_f16x4, isa_half(b)), isa_sums(d), 0, 0, 0));
}
DEV void mfma_32x32x8_bf16(float d[16], const u32 a[2], const u32 b[2]) {
    isa_sums_to(d, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
                       __builtin_bit_cast(isa_s16x4, isa_half(a)),
                       __builtin_bit_cast(isa_s16x4, isa_half(b)), isa_sums(d), 0, 0, 0));
}
DEV void mfma_32x32x2_f32(float d[16], float a, float b) {
    isa_sums_to(d, __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, isa_sums(d), 0, 0, 0));
}

/* -- Order ------------------------------------------------------------------------------------- */
/* s_setprio: which wave of a SIMD goes first, 0..3. */
#define wave_priority(n) __builtin_amdgcn_s_setprio(n)
/* s_waitcnt: all loads of device memory are in their registers. The compiler waits by itself; but
   where registers are filled before a loop and read in it, it would wait in every round. */
#define wait_loads() __builtin_amdgcn_s_waitcnt(0x0f70)
/* Across this point the compiler moves nothing. No instruction. */
#define order_here() __builtin_amdgcn_sched_barrier(0)

#endif
