/* ptx_wgmma_sum.c: the model of wgmma, PTX ISA 9.0, 9.7.15: where operands lie in shared memory,
   and the sum of a product.

   Who calls it: ptx_wgmma.c. A descriptor (9.7.15.5.1.2) has, in bits:

       63 62  61..52  51..49  48  47 46  45..32   31 30  29..16    15 14  13..0
       swizzle  -      base    -    -    stride/16  -    leading/16   -   start/16

   swizzle 0: none, 1: 128 bytes, 2: 64, 3: 32. A chunk is 16 bytes, 8 numbers of 16 bits; a core 8
   rows of `span` bytes (no swizzle: 16). Chunk c of row r, before the swizzle:

       k in rows      no swizzle   start + 16 (r % 8) + stride (r / 8) + leading c
                      span         start + span (r % 8) + stride (r / 8) + 16 c
       across, row k  no swizzle   start + 16 (k % 8) + leading (k / 8) + stride c
                      span         start + span (k % 8) + stride (k / 8)
                                     + 16 (c % w) + leading (c / w), w = span / 16

   The swizzle is of the address: its bits 4.. change by those from 7 on, as many as the span has
   chunks for. A core begins at a multiple of 8 span.

   Products are summed as those of mma (ptx_mma.c): of even k, those of odd k to them, all to d,
   there toward zero. */
#include "ptx_vec.h"
#include "ptx_wgmma.h"

#include <string.h>

/* -- Where ------------------------------------------------------------------------------------- */

const char *attn__ptx_chunks(uint32_t *at, uint64_t descriptor, int rows, int across) {
    static const uint32_t spans[4] = {16, 128, 64, 32};
    const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
    const uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    const uint32_t span = spans[descriptor >> 62], chunks = span / 16;
    const uint32_t swizzle = (chunks - 1) << 4, plain = span == 16;
    if (descriptor & 0x3ffec000c000c000ull) {
        return "bits are set that mean nothing, or a base";
    }
    if (start >> 3 & swizzle) {
        return "the start is in the middle of 8 rows";
    }
    const int n = 2 * rows, width = across ? rows / 8 : 2;
    for (int i = 0; i < n; i++) {
        const uint32_t r = (uint32_t)(i / width), c = (uint32_t)(i % width);
        uint32_t x = start + span * (r % 8) + (plain && across ? leading : stride) * (r / 8);
        if (plain) {
            x += (across ? stride : leading) * c;
        } else {
            x += 16 * (c % chunks) + leading * (c / chunks);
        }
        at[i] = x ^ (x >> 3 & swizzle);
    }
    return NULL;
}

/* Cycles: 8 rows of a core at once, as the chunks fall on 8 times 4 banks. */
static void count_banks(const uint32_t *at, int rows, int across) {
    const int width = across ? rows / 8 : 2;
    for (int first = 0; first < 2 * rows; first += 8 * width) {
        for (int c = 0; c < width; c++) {
            int used[8] = {0}, most = 0;
            for (int r = 0; r < 8; r++) {
                const int n = ++used[at[first + r * width + c] / 16 % 8];
                most = n > most ? n : most;
            }
            attn__emu_access(1, most);
        }
    }
}

/* -- The sum ----------------------------------------------------------------------------------- */

typedef uint16_t halves __attribute__((vector_size(16)));
typedef double wide __attribute__((vector_size(64)));
typedef uint64_t wide_bits __attribute__((vector_size(64)));

/* n numbers of 16 bits, n a multiple of 8. */
INLINE void widen_all(float *to, const uint16_t *from, int n, int bf16) {
    for (int i = 0; i < n; i += 8) {
        halves words;
        memcpy(&words, from + i, sizeof words);
        bits x = __builtin_convertvector(words, bits);
        widen_16(&x, bf16);
        memcpy(to + i, &x, sizeof x);
    }
}

/* a += b, toward zero; what passes f32 is infinite, as in ptx_mma.c. */
INLINE void add_to(vec *a, const vec *b) {
    const wide sum = __builtin_convertvector(*a, wide) + __builtin_convertvector(*b, wide);
    const vec near = __builtin_convertvector(sum, vec);
    const wide_bits size = ~(1ull << 63) & (wide_bits) __builtin_convertvector(near, wide);
    const wide_bits past = (wide_bits)((wide)size > (wide)(~(1ull << 63) & (wide_bits)sum));
    const bits finite = (bits)(((bits)near & 0x7fffffffu) < 0x7f800000u);
    *a = (vec)((bits)near + (__builtin_convertvector(past, bits) & finite));
}

/* b[k][n]; k in the order even, odd. */
INLINE void add_rows(float (*d)[WGMMA_N], float (*a)[16], float (*b)[WGMMA_N], int n, int add) {
    for (int i = 0; i < 64; i += 4) {
        for (int j = 0; j < n; j += 8) {
            vec sum[4] = {{0}}, row;
            for (int k = 0; k < 16; k++) {
                const int at = k % 8 * 2 + k / 8;
                memcpy(&row, &b[at][j], sizeof row);
                for (int r = 0; r < 4; r++) {
                    sum[r] += row * a[i + r][at];
                }
            }
            for (int r = 0; r < 4; r++) {
                if (add) {
                    memcpy(&row, &d[i + r][j], sizeof row);
                    add_to(&sum[r], &row);
                }
                memcpy(&d[i + r][j], &sum[r], sizeof row);
            }
        }
    }
}

INLINE void multiply(float (*d)[WGMMA_N], const uint16_t *a, const uint16_t *b,
                     const attn_emu_wgmma *what) {
    float fa[64][16], fb[16][WGMMA_N], rows[WGMMA_N][16];
    widen_all(fa[0], a, 64 * 16, what->bf16);
    if (what->across) {
        for (int k = 0; k < 16; k++) {
            widen_all(fb[k], b + k * what->n, what->n, what->bf16);
        }
    } else {
        widen_all(rows[0], b, what->n * 16, what->bf16);
        for (int k = 0; k < 16; k++) {
            for (int j = 0; j < what->n; j++) {
                fb[k][j] = rows[j][k];
            }
        }
    }
    add_rows(d, fa, fb, what->n, what->add);
}

static void multiply_any(float (*d)[WGMMA_N], const uint16_t *a, const uint16_t *b,
                         const attn_emu_wgmma *what) {
    multiply(d, a, b, what);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(float (*d)[WGMMA_N], const uint16_t *a,
                                                          const uint16_t *b,
                                                          const attn_emu_wgmma *what) {
    multiply(d, a, b, what);
}
#define MULTIPLY (__builtin_cpu_supports("avx2") ? multiply_avx2 : multiply_any)
#else
#define MULTIPLY multiply_any
#endif

/* Rows l / 4 and 8 further down of k = 2 (l % 4), + 1; the same of 8 k further on. */
static void a_of_registers(uint16_t (*a)[16], const product *p) {
    for (int l = 0; l < PTX_GROUP; l++) {
        for (int i = 0; i < 4; i++) {
            const int row = l / 32 * 16 + l % 32 / 4 + i % 2 * 8;
            memcpy(&a[row][i / 2 * 8 + l % 4 * 2], &p->a[l][i], 4);
        }
    }
}

/* Chunks as attn__ptx_chunks orders them. */
static void a_of_chunks(uint16_t (*a)[16], const product *p, int thread) {
    for (int i = 0; i < 128; i++) {
        uint16_t chunk[8];
        memcpy(chunk, attn__emu_read(thread, p->at_a[i], &p->seen), 16);
        for (int j = 0; j < 8; j++) {
            *(p->what.a_across ? &a[i % 8 * 8 + j][i / 8] : &a[i / 2][i % 2 * 8 + j]) = chunk[j];
        }
    }
}

static void run(const product *p, int group) {
    const int thread = group * PTX_GROUP, n = p->what.n;
    uint16_t a[64][16], b[16 * WGMMA_N];
    if (p->what.registers) {
        a_of_registers(a, p);
    } else {
        a_of_chunks(a, p, thread);
        count_banks(p->at_a, 64, p->what.a_across);
    }
    for (int i = 0; i < 2 * n; i++) {
        memcpy(&b[i * 8], attn__emu_read(thread, p->at_b[i], &p->seen), 16);
    }
    count_banks(p->at_b, n, p->what.across);
    MULTIPLY(p->sum->d, a[0], b, &p->what);
    attn__emu_matrix(2ull * 64 * 16 * (unsigned)n);
}

void attn__ptx_run_to(ptx_group *g, int group, int n) {
    for (; g->done < n; g->done++) {
        run(&g->product[g->done % FLYING], group);
    }
}
