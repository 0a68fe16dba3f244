// tensor_sum.cu: how an NVIDIA tensor core sums c + a0 b0 + a1 b1 + ... in one instruction: how far
// below the largest term it keeps bits, and how it rounds.
//
//     nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a tests/bench/tensor_sum.cu -o tensor_sum
//
// docs/emulator.md says what an H200 showed. Lane l has g = l / 4, t = l % 4; row 0 of A and column
// 0 of the result are used.
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

enum { BF16, TF32, WGMMA, KINDS };
static const char *const names[] = {"mma.sync bf16", "mma.sync tf32", "wgmma bf16"};

__device__ uint32_t pair_of(const float *x) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(x[0], x[1]);
    uint32_t w;
    memcpy(&w, &h, sizeof w);
    return w;
}

__global__ void by_bf16(float *out, const float *a, const float *b, float c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const uint32_t a0 = g ? 0 : pair_of(a + 2 * t), a2 = g ? 0 : pair_of(a + 2 * t + 8);
    float d[4] = {c, c, c, c};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(0), "r"(a2), "r"(pair_of(b + 2 * t)), "r"(pair_of(b + 2 * t + 8)));
    if (threadIdx.x == 0) {
        *out = d[0];
    }
}

__global__ void by_tf32(float *out, const float *a, const float *b, float c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    float d[4] = {c, c, c, c};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(g ? 0 : __float_as_uint(a[t])), "r"(0),
                   "r"(g ? 0 : __float_as_uint(a[t + 4])), "r"(__float_as_uint(b[t])),
                   "r"(__float_as_uint(b[t + 4])));
    if (threadIdx.x == 0) {
        *out = d[0];
    }
}

// A in registers, B (16 x 8, each column's k side by side, no swizzle) in shared memory.
__global__ void by_wgmma(float *out, const float *a, const float *b, float c) {
    __shared__ __align__(128) __nv_bfloat16 tile[128];
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    tile[threadIdx.x] = __float2bfloat16_rn(b[threadIdx.x / 64 * 8 + threadIdx.x % 8]);
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    const uint64_t at = __cvta_generic_to_shared(tile);
    const uint64_t b_at = at >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    const uint32_t a0 = g ? 0 : pair_of(a + 2 * t), a2 = g ? 0 : pair_of(a + 2 * t + 8);
    float d[4] = {c, c, c, c};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%5}, %7, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(0), "r"(a2), "l"(b_at));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    if (threadIdx.x == 0) {
        *out = d[0];
    }
}

static float *a, *b, *out; // 16, 16 and 1 in memory of the host that the device sees

static double sum(int kind, float c) {
    if (kind == BF16) {
        by_bf16<<<1, 32>>>(out, a, b, c);
    } else if (kind == TF32) {
        by_tf32<<<1, 32>>>(out, a, b, c);
    } else {
        by_wgmma<<<1, 128>>>(out, a, b, c);
    }
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(error));
    }
    return *out;
}

static int depth_of(int kind) {
    return kind == TF32 ? 8 : 16;
}

// Factors 1, and in b `first`, then `others`.
static double off(int kind, float first, float others, float c) {
    for (int i = 0; i < 16; i++) {
        a[i] = i < depth_of(kind);
        b[i] = i >= depth_of(kind) ? 0 : i == 0 ? first : others;
    }
    return (sum(kind, c) - (c != 0 ? c : first)) * 0x1p23;
}

static uint64_t state = 88172645463325252u;
static float random_number() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((double)(state >> 11) / 0x1p53 * 2 - 1);
}
static float rounded(int kind, float x) { // to what the instruction reads
    uint32_t w;
    memcpy(&w, &x, sizeof w);
    w &= ~8191u;
    float cut;
    memcpy(&cut, &w, sizeof cut);
    return kind == TF32 ? cut : __bfloat162float(__float2bfloat16_rn(x));
}

static void random_sums(int kind) {
    enum { N = 4000 };
    double mean = 0, square = 0;
    for (int n = 0; n < N; n++) {
        const float c = random_number() * 4;
        double exact = c;
        for (int i = 0; i < 16; i++) {
            const float x = random_number(), y = random_number();
            a[i] = i < depth_of(kind) ? rounded(kind, x) : 0;
            b[i] = i < depth_of(kind) ? rounded(kind, y) : 0;
            exact += (double)a[i] * b[i];
        }
        const double error = (sum(kind, c) - exact) * (exact < 0 ? -1 : 1) /
                             std::ldexp(1, std::ilogb(exact) - 23);
        mean += error / N;
        square += error * error / N;
    }
    std::printf("%d random sums, in units of the last place: mean error %g (below 0: toward zero), "
                "root mean square %g\n", N, mean, std::sqrt(square));
}

int main() {
    cudaHostAlloc(&a, 64, 0);
    cudaHostAlloc(&b, 64, 0);
    cudaHostAlloc(&out, 64, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        std::printf("%s, in units of 2^-23:\n", names[kind]);
        for (int e = 22; e <= 26; e++) {
            const float x = std::ldexp(1.5f, -e);
            std::printf("  1.5 * 2^-%d: 1 + it %+g, 1 - it %+g, -1 + it %+g\n", e,
                        off(kind, x, 0, 1), off(kind, -x, 0, 1), off(kind, x, 0, -1));
        }
        for (int e = 23; e <= 27; e++) {
            const float x = std::ldexp(1.0f, -e);
            std::printf("  all products 2^-%d: c = 1: %g, -2^-%d: %g; first 1, c = 0: %g\n", e,
                        off(kind, x, x, 1), e, off(kind, -x, -x, 1), off(kind, 1, x, 0));
        }
        random_sums(kind);
    }
}
