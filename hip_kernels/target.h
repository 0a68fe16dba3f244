/* target.h: the one place of hip_kernels/ that knows which chip and which compiler this is.

   Who includes it: every kernel file, first. The text goes through nvcc, NVRTC, clang (HIP), hipRTC
   and, for the emulator, the host's C compiler; so it is C that is also C++.

       compiler's own macros, or ATTN_EMU=...
            |
            v
       ATTN_HAS_... what the chip can do, tested by isa/ alone       ATTN_ISA_H   isa/ptx.h, gcn.h
       TILE_LANES   lanes of a warp (a wave)                         ATTN_ARCH_H  arch/....h
       DEV, ATTN_ENTRY, UNROLL, ROLLED, EIGHTFOLD (before a loop: eight rounds at once, so that
       their loads fly together), u32, ...

   ATTN_EMU is the chip's number in the emulator (lib/emu/emu_driver.c). There isa/ is not that of
   this folder but lib/emu/isa/, the model. */
#ifndef ATTN_TARGET_H
#define ATTN_TARGET_H

#include "core/types.h"

#if defined(ATTN_EMU)
#define ATTN_CHIP ATTN_EMU
#elif defined(__CUDACC__)
#if __CUDA_ARCH__ >= 900
#define ATTN_CHIP 90
#else
#define ATTN_CHIP 80
#endif
#elif defined(__gfx90a__)
#define ATTN_CHIP 0x90a
#elif defined(__gfx942__)
#define ATTN_CHIP 0x942
#elif defined(__HIP__)
#define ATTN_CHIP 0x90a /* the host's pass over the text; its code is thrown away */
#else
#error "no target: nvcc, clang for a chip named above, or ATTN_EMU is wanted"
#endif

#if ATTN_CHIP == 80 || ATTN_CHIP == 90
#define TILE_LANES 32
#define ATTN_HAS_CP_ASYNC 1
#define ATTN_ISA_H "isa/ptx.h"
#if ATTN_PRODUCER
#define ATTN_ISA_MORE_H "isa/ptx_sm90.h"
#define ATTN_ARCH_H "arch/sm90.h"
#else
#define ATTN_ARCH_H "arch/sm80.h" /* the 90 takes it, too, under multistage and in backward */
#endif
#if ATTN_WGMMA
#define ATTN_ISA_MORE_H "isa/ptx_sm90.h"
#endif
#if ATTN_CHIP == 90
#define ATTN_HAS_ADD_4 1 /* atomics of four floats */
#endif
#elif ATTN_CHIP == 0x90a
#define TILE_LANES 64
#define ATTN_HAS_FLUSHING_MFMA 1 /* 16-bit subnormals count as 0 */
#define ATTN_ISA_H "isa/gcn.h"
#define ATTN_ARCH_H "arch/gfx90a.h"
#elif ATTN_CHIP == 0x942
#define TILE_LANES 64
#define ATTN_HAS_XCD 1
#define ATTN_ISA_H "isa/gcn.h"
#define ATTN_ARCH_H "arch/gfx942.h"
#else
#error "ATTN_EMU is the number of no chip"
#endif

/* A kernel is written as a function of a pointer to its parameters; ATTN_ENTRY makes what the host
   launches. EXPORT: a number that the host reads from the module by name. */
#if defined(ATTN_EMU)
#define DEV static inline __attribute__((always_inline, unused))
#define UNROLL
#define ROLLED
#define EIGHTFOLD
#define EXPORT(name, value) const i32 name = value
#define ATTN_ENTRY(name, body, params)                                                             \
    void name(const params *p);                                                                    \
    void name(const params *p) {                                                                   \
        body(p);                                                                                   \
    }
#elif defined(__CUDACC__)
/* Blocks that an SM must have room for; 0: any. Registers change hands only where that is said. */
#define ATTN_BLOCKS (ATTN_PRODUCER ? 1 : 0)
#define DEV static __device__ __forceinline__
#define UNROLL    _Pragma("unroll")
#define ROLLED    _Pragma("unroll 1")
#define EIGHTFOLD _Pragma("unroll 8")
#define EXPORT(name, value) extern "C" __device__ const i32 name = value
#define ATTN_ENTRY(name, body, params)                                                             \
    extern "C" __global__ void __launch_bounds__(ATTN_THREADS, ATTN_BLOCKS)                        \
        name(const __grid_constant__ params p) {                                                   \
        body(&p);                                                                                  \
    }
#else
#define DEV static __attribute__((device, always_inline, unused)) inline
#define UNROLL    _Pragma("unroll")
#define ROLLED    _Pragma("unroll 1")
#define EIGHTFOLD ROLLED /* eight would spill */
#define EXPORT(name, value) extern "C" __attribute__((device, used)) const i32 name = value
/* Waves that should fit a SIMD unit at least: two share 512 registers a lane if they can, so that
   one multiplies while the other does softmax. In a small block a lane holds more of a load. */
#if ATTN_CHIP == 0x90a
#define ATTN_RESIDENT_SIZE (ATTN_TYPE == ATTN_F16 ? 384 : 512) /* f16: two ways to multiply */
#else
#define ATTN_RESIDENT_SIZE 512
#endif
#define ATTN_RESIDENT                                                                              \
    (!ATTN_BACKWARD && (ATTN_D + ATTN_DV) * ATTN_BYTES <= ATTN_RESIDENT_SIZE && ATTN_WARPS >= 4    \
         ? 2                                                                                       \
         : 1)
#define ATTN_ENTRY(name, body, params)                                                             \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(ATTN_THREADS, ATTN_THREADS),     \
                              amdgpu_waves_per_eu(ATTN_RESIDENT)))                                 \
    void name(const params p) {                                                                    \
        body(&p);                                                                                  \
    }
#endif

/* What a compile is told, see core/config.h. */
#include "core/config.h"
#include ATTN_ISA_H
#ifdef ATTN_ISA_MORE_H
#include ATTN_ISA_MORE_H
#endif

#endif
