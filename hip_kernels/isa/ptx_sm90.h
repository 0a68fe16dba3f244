/* ptx_sm90.h: instructions that sm_90a has besides those of ptx.h, one a function.

   Who calls it: arch/sm90.h. Source: PTX ISA 9.0, the section named beside each. The emulator's
   model of it: lib/emu/isa/ptx_sm90.h, with the same names (a test compares).

   Shared memory is addressed as in ptx.h: u32, bytes from the block's first. A group is a
   warpgroup: four warps that follow one another, the first one's number a multiple of 4. */
#ifndef ATTN_PTX_SM90_H
#define ATTN_PTX_SM90_H

/* -- Groups ------------------------------------------------------------------------------------ */
/* The same in all lanes, and the compiler knows it. */
DEV int group_id(void) { return __shfl_sync(0xffffffffu, (int)(threadIdx.x >> 7), 0); }
/* The x of lane `lane`, the same number in all lanes, likewise; of lane 0. */
DEV u32 warp_from(u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEV u32 warp_same(u32 x) { return warp_from(x, 0); }
/* Of a group: from here on each thread has n registers, a constant. 9.7.20.5 setmaxnreg */
#define regs_more(n) ISA_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define regs_less(n) ISA_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
/* Barrier `id` of the block, 1..15, for `threads` threads of whole warps: waits until as many have
   come, or comes and does not wait. 9.7.13.1 bar */
DEV void named_sync(int id, int threads) {
    ISA_ASM("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void named_arrive(int id, int threads) {
    ISA_ASM("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* What this thread wrote to shared memory is seen by wgmma and TMA of whoever it meets next.
   9.7.13.4 fence.proxy.async */
DEV void proxy_fence(void) { ISA_ASM("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Of two numbers of 16 bits each: those of w that are not finite become NaN in `bad`, which begins
   as 0. 9.7.4.1 fma: w * 0 + bad */
DEV u32 spoil_bf16(u32 w, u32 bad) {
    ISA_ASM("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(bad) : "r"(w), "r"(0));
    return bad;
}
DEV u32 spoil_f16(u32 w, u32 bad) {
    ISA_ASM("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(bad) : "r"(w), "r"(0));
    return bad;
}

/* -- mbarrier, 9.7.13.15 ----------------------------------------------------------------------- */
/* 8 bytes of shared memory. A phase ends when `count` arrivals and all expected bytes have come;
   the first one has parity 0. */
DEV void mbarrier_init(u32 at, int count) {
    ISA_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(at)), "r"(count) : "memory");
}
/* Behind all inits of a thread, before the block meets. */
DEV void mbarrier_init_fence(void) {
    ISA_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEV void mbarrier_arrive(u32 at) {
    ISA_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(at)) : "memory");
}
/* Arrives; the phase awaits `bytes` more. */
DEV void mbarrier_expect(u32 at, int bytes) {
    ISA_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(at)),
            "r"(bytes)
            : "memory");
}
/* 1 if the phase of this parity has ended: the present one's has not, the last one's has. May wait
   for a while. */
DEV int mbarrier_try_wait(u32 at, u32 parity) {
    int ended;
    ISA_ASM("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
            "selp.s32 %0, 1, 0, p; }"
            : "=r"(ended)
            : "r"(shared_at(at)), "r"(parity)
            : "memory");
    return ended;
}
DEV void mbarrier_wait(u32 at, u32 parity) {
    while (!mbarrier_try_wait(at, parity)) {
    }
}

/* -- TMA, 9.7.9.27: boxes of a tensor that the host has described (attn__boxes of lib/gpu.h) --- */
DEV void tensor_prefetch(const tensor_map *map) {
    ISA_ASM("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* The box whose first element is (c0, c1, c2, c3), to shared memory at a multiple of 1024; what is
   outside of the tensor becomes 0. All of the box's bytes then count for the barrier. */
DEV void tensor_load_4d(u32 to, const tensor_map *map, u32 barrier, i32 c0, i32 c1, i32 c2,
                        i32 c3) {
    ISA_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_at(to)),
            "l"(map), "r"(shared_at(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
            : "memory");
}
/* The other way; what is outside of the tensor is not written. */
DEV void tensor_store_4d(const tensor_map *map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3) {
    ISA_ASM("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
                "l"(map), "r"(shared_at(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
            : "memory");
}
/* Closes a set of this thread's stores; until all sets have read shared memory. 9.7.9.25.6 */
DEV void store_commit(void) { ISA_ASM("cp.async.bulk.commit_group;" ::: "memory"); }
DEV void store_wait_read(void) { ISA_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/* -- wgmma, 9.7.15: a group's product d (64 x N, f32) += a (64 x 16) b (16 x N) ---------------- */
/* Before the first product, and after registers of one have been touched otherwise. */
DEV void wgmma_fence(void) { ISA_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Closes a set of products. */
DEV void wgmma_commit(void) { ISA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until all but the n youngest sets have ended; n is a constant. */
#define wgmma_wait(n) ISA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
/* No instruction: x changes here, so that no use of it is moved across. */
DEV void pin(float *x) { ISA_ASM("" : "+f"(*x)::"memory"); }

/* Where a matrix lies in shared memory: rows of 128 bytes, each one's 16-byte chunk c at
   c ^ (row % 8), in cores of 8 rows, 1024 bytes, at a multiple of that.
       k in a row (a, b):   stride: bytes from 8 rows of M or N to the next
       m or n in a row:     stride: from 8 rows of k to the next; leading: from 64 columns to the
                            next 64 (a has no more)
   x bytes further on is + x / 16. 9.7.15.5.1.2 */
DEV u64 wgmma_desc(u32 at, u32 leading, u32 stride) {
    return (u64)1 << 62 | (u64)(stride >> 4) << 32 | (u64)(leading >> 4) << 16 |
           (u64)((shared_at(at) & 0x3ffffu) >> 4);
}

/* Lane l of warp w has rows 16 w + l / 4 (x) and 8 further down (y); x[2 j + e] and y[2 j + e] are
   columns 8 j + 2 (l % 4) + e. Registers of d in order: x[0], x[1], y[0], y[1], x[2], ... */
#define ISA_D4(i) "+f"(x[i]), "+f"(x[(i) + 1]), "+f"(y[i]), "+f"(y[(i) + 1])
#define ISA_D16(i) ISA_D4(i), ISA_D4((i) + 2), ISA_D4((i) + 4), ISA_D4((i) + 6)
#define ISA_D32(i) ISA_D16(i), ISA_D16((i) + 8)
#define ISA_D64(i) ISA_D32(i), ISA_D32((i) + 16)
#define ISA_N32    ISA_D16(0)
#define ISA_N48    ISA_N32, ISA_D4(8), ISA_D4(10)
#define ISA_N64    ISA_D32(0)
#define ISA_N80    ISA_N64, ISA_D4(16), ISA_D4(18)
#define ISA_N96    ISA_N64, ISA_D16(16)
#define ISA_N112   ISA_N96, ISA_D4(24), ISA_D4(26)
#define ISA_N128   ISA_D64(0)
#define ISA_N160   ISA_N128, ISA_D16(32)
#define ISA_N176   ISA_N160, ISA_D4(40), ISA_D4(42)
#define ISA_N192   ISA_N128, ISA_D32(32)
#define ISA_N256   ISA_N128, ISA_D64(32)

#define ISA_S16  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ISA_S24  ISA_S16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define ISA_S32  ISA_S24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define ISA_S40  ISA_S32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define ISA_S48  ISA_S40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define ISA_S56  ISA_S48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define ISA_S64  ISA_S56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define ISA_S80  ISA_S64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define ISA_S88  ISA_S80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define ISA_S96  ISA_S88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define ISA_S112 ISA_S96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109" \
                         ",%110,%111"
#define ISA_S128 ISA_S112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124" \
                          ",%125,%126,%127"

/* a and b in shared memory, k in their rows; add 0: d is 0 before. */
#define ISA_WGMMA_SS(n, type, out, regs, a_at, b_at, add_at)                                       \
    DEV void wgmma_64x##n##x16_ss_##type(float *x, float *y, u64 a, u64 b, int add) {              \
        ISA_ASM("{ .reg .pred p; setp.ne.b32 p, %" add_at ", 0; "                                  \
                "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" regs        \
                "}, %" a_at ", %" b_at ", p, 1, 1, 0, 0; }"                                        \
                : out                                                                              \
                : "l"(a), "l"(b), "r"(add));                                                       \
    }
/* a in registers (rows l / 4 and 8 further down of k = 2 (l % 4), + 1; then of 8 k further on), b
   in shared memory, n in its rows. */
#define ISA_WGMMA_RS(n, type, out, regs, a0, a1, a2, a3, b_at)                                     \
    DEV void wgmma_64x##n##x16_rs_##type(float *x, float *y, const u32 a[4], u64 b) {              \
        ISA_ASM("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" regs        \
                "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b_at ", 1, 1, 1, 1;"                  \
                : out                                                                              \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                             \
    }
/* a and b in shared memory, m in the rows of a, n in those of b; add 0: d is 0 before. */
#define ISA_WGMMA_TT(n, type, out, regs, a_at, b_at, add_at)                                       \
    DEV void wgmma_64x##n##x16_tt_##type(float *x, float *y, u64 a, u64 b, int add) {              \
        ISA_ASM("{ .reg .pred p; setp.ne.b32 p, %" add_at ", 0; "                                  \
                "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" regs        \
                "}, %" a_at ", %" b_at ", p, 1, 1, 1, 1; }"                                        \
                : out                                                                              \
                : "l"(a), "l"(b), "r"(add));                                                       \
    }
#define ISA_WGMMA_KEYS(n, out, regs, a_at, b_at, add_at)                                           \
    ISA_WGMMA_SS(n, f16, ISA_##out, ISA_##regs, a_at, b_at, add_at)                                \
    ISA_WGMMA_SS(n, bf16, ISA_##out, ISA_##regs, a_at, b_at, add_at)
#define ISA_WGMMA_COLUMNS(n, out, regs, a0, a1, a2, a3, b_at)                                      \
    ISA_WGMMA_RS(n, f16, ISA_##out, ISA_##regs, a0, a1, a2, a3, b_at)                              \
    ISA_WGMMA_RS(n, bf16, ISA_##out, ISA_##regs, a0, a1, a2, a3, b_at)
#define ISA_WGMMA_TURNED(n, out, regs, a_at, b_at, add_at)                                         \
    ISA_WGMMA_TT(n, f16, ISA_##out, ISA_##regs, a_at, b_at, add_at)                                \
    ISA_WGMMA_TT(n, bf16, ISA_##out, ISA_##regs, a_at, b_at, add_at)
ISA_WGMMA_KEYS(32, N32, S16, "16", "17", "18")
ISA_WGMMA_KEYS(48, N48, S24, "24", "25", "26")
ISA_WGMMA_KEYS(64, N64, S32, "32", "33", "34")
ISA_WGMMA_KEYS(80, N80, S40, "40", "41", "42")
ISA_WGMMA_KEYS(96, N96, S48, "48", "49", "50")
ISA_WGMMA_KEYS(112, N112, S56, "56", "57", "58")
ISA_WGMMA_KEYS(128, N128, S64, "64", "65", "66")
ISA_WGMMA_KEYS(160, N160, S80, "80", "81", "82")
ISA_WGMMA_KEYS(176, N176, S88, "88", "89", "90")
ISA_WGMMA_KEYS(192, N192, S96, "96", "97", "98")
ISA_WGMMA_COLUMNS(32, N32, S16, "16", "17", "18", "19", "20")
ISA_WGMMA_COLUMNS(64, N64, S32, "32", "33", "34", "35", "36")
ISA_WGMMA_COLUMNS(96, N96, S48, "48", "49", "50", "51", "52")
ISA_WGMMA_COLUMNS(128, N128, S64, "64", "65", "66", "67", "68")
ISA_WGMMA_COLUMNS(192, N192, S96, "96", "97", "98", "99", "100")
ISA_WGMMA_COLUMNS(256, N256, S128, "128", "129", "130", "131", "132")
ISA_WGMMA_TURNED(32, N32, S16, "16", "17", "18")
ISA_WGMMA_TURNED(64, N64, S32, "32", "33", "34")

#endif
