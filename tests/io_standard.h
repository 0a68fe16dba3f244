/* io_standard.h: the standard algorithm, forward and backward, as emulated kernels that write S and
   P to memory and read them back (Dao et al., arXiv 2205.14135, algorithms 0 and 3), and the bytes
   that they move.

   Who includes it: io_test.cc. All numbers are f16, D is 64 or 128, N a multiple of ROWS. A thread
   has a row (or, of a transposed matrix, a column), a block ROWS of them; what all rows of a block
   meet passes through shared memory once a block, STEP rows at a time. Every byte is read and
   written as seldom as these launches can:

       forward     products    S  = scale Q K'
                   softmax     P                            of each row
                   weighted    O  = P V
       backward    turned      dV = P' dO
                   products    dP = dO V'
                   dscores     dS = P (dP - sum of P dP)    of each row
                   weighted    dQ = scale dS K
                   turned      dK = scale dS' Q  */
#ifndef ATTN_IO_STANDARD_H
#define ATTN_IO_STANDARD_H

#include "emu_host.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace standard {

enum { ROWS = 128, STEP = 32, MOST = 512 };

inline const char *const text = R"(
enum { ROWS = 128, STEP = 32, MOST = 512 };
typedef struct standard { u64 a, b, to; i32 N, D; float scale; } standard;
typedef struct numbers { float x[8]; } numbers;

DEV i64 my_row(void) { return block_id() * ROWS + thread_id(); }

DEV numbers numbers_of(b128 x) {
    numbers n;
    for (int i = 0; i < 4; i++) {
        n.x[2 * i] = float_of_f16(x.w[i] & 0xffff);
        n.x[2 * i + 1] = float_of_f16(x.w[i] >> 16);
    }
    return n;
}
DEV numbers load_8(u64 row, i32 c) { return numbers_of(load_b128(row + (u64)c * 2)); }
DEV void store_8(u64 row, i32 c, const float *from) {
    b128 x;
    for (int i = 0; i < 4; i++) { x.w[i] = pack_f16(from[2 * i], from[2 * i + 1]); }
    store_b128(row + (u64)c * 2, x);
}

// Rows row .. row + 31 of `from`, and element e of the j-th of them.
DEV void stage(u64 from, i32 row, i32 D) {
    block_sync();
    for (i32 i = thread_id(); i < STEP * D / 8; i += ROWS) {
        shared_store_b128((u32)i * 16, load_b128(from + ((u64)row * (u64)D * 2 + (u64)i * 16)));
    }
    block_sync();
}
DEV numbers staged_8(i32 j, i32 D, i32 e) {
    return numbers_of(shared_load_b128((u32)(j * D + e) * 2));
}

DEV void products_body(const args *args) {
    const standard *const p = (const standard *)args->in;
    float a[128], s[STEP];
    for (i32 d = 0; d < p->D; d += 8) {
        const numbers n = load_8(p->a + (u64)(my_row() * p->D) * 2, d);
        for (int e = 0; e < 8; e++) { a[d + e] = n.x[e]; }
    }
    for (i32 at = 0; at < p->N; at += STEP) {
        stage(p->b, at, p->D);
        for (i32 j = 0; j < STEP; j++) {
            s[j] = 0;
            for (i32 d = 0; d < p->D; d += 8) {
                const numbers n = staged_8(j, p->D, d);
                for (int e = 0; e < 8; e++) { s[j] += a[d + e] * n.x[e] * p->scale; }
            }
        }
        for (i32 j = 0; j < STEP; j += 8) {
            store_8(p->to + (u64)(my_row() * p->N) * 2, at + j, s + j);
        }
    }
}
ATTN_ENTRY(products, products_body, args)

DEV void softmax_body(const args *args) {
    const standard *const p = (const standard *)args->in;
    float s[MOST], most = -1e30f, sum = 0;
    const u64 row = (u64)(my_row() * p->N) * 2;
    for (i32 j = 0; j < p->N; j += 8) {
        const numbers n = load_8(p->a + row, j);
        for (int e = 0; e < 8; e++) { most = max_num(most, s[j + e] = n.x[e]); }
    }
    for (i32 j = 0; j < p->N; j++) {
        s[j] = exp2_fast((s[j] - most) * 1.44269504f);
        sum += s[j];
    }
    for (i32 j = 0; j < p->N; j++) { s[j] /= sum; }
    for (i32 j = 0; j < p->N; j += 8) { store_8(p->to + row, j, s + j); }
}
ATTN_ENTRY(softmax, softmax_body, args)

DEV void dscores_body(const args *args) {
    const standard *const p = (const standard *)args->in;
    float w[MOST], g[MOST], sum = 0;
    const u64 row = (u64)(my_row() * p->N) * 2;
    for (i32 j = 0; j < p->N; j += 8) {
        const numbers a = load_8(p->a + row, j), b = load_8(p->b + row, j);
        for (int e = 0; e < 8; e++) {
            w[j + e] = a.x[e];
            g[j + e] = b.x[e];
            sum += a.x[e] * b.x[e];
        }
    }
    for (i32 j = 0; j < p->N; j++) { g[j] = w[j] * (g[j] - sum); }
    for (i32 j = 0; j < p->N; j += 8) { store_8(p->to + row, j, g + j); }
}
ATTN_ENTRY(dscores, dscores_body, args)

// o += the weight of row at + j times that row, j < 8.
DEV void weigh(const standard *p, float *o, i32 j, const float *w) {
    for (i32 i = 0; i < 8; i++) {
        for (i32 d = 0; d < p->D; d += 8) {
            const numbers n = staged_8(j + i, p->D, d);
            for (int e = 0; e < 8; e++) { o[d + e] += w[i] * n.x[e] * p->scale; }
        }
    }
}
DEV void store_row(const standard *p, const float *o) {
    for (i32 d = 0; d < p->D; d += 8) { store_8(p->to + (u64)(my_row() * p->D) * 2, d, o + d); }
}

DEV void weighted_body(const args *args) {
    const standard *const p = (const standard *)args->in;
    float o[128] = {0};
    for (i32 at = 0; at < p->N; at += STEP) {
        stage(p->b, at, p->D);
        for (i32 j = 0; j < STEP; j += 8) {
            const numbers w = load_8(p->a + (u64)(my_row() * p->N) * 2, at + j);
            weigh(p, o, j, w.x);
        }
    }
    store_row(p, o);
}
ATTN_ENTRY(weighted, weighted_body, args)

// Lanes side by side read columns side by side.
DEV void turned_body(const args *args) {
    const standard *const p = (const standard *)args->in;
    float o[128] = {0}, w[8];
    for (i32 at = 0; at < p->N; at += STEP) {
        stage(p->b, at, p->D);
        for (i32 j = 0; j < STEP; j += 8) {
            for (int i = 0; i < 8; i++) {
                w[i] = float_of_f16(load_u16(p->a + (u64)((at + j + i) * p->N + my_row()) * 2));
            }
            weigh(p, o, j, w);
        }
    }
    store_row(p, o);
}
ATTN_ENTRY(turned, turned_body, args)
)";

using Half = std::vector<uint16_t>; /* [rows][columns] */

struct Params { /* as the kernels have it */
    uint64_t a, b, to;
    int32_t N, D;
    float scale;
};

/* One head. */
class Head {
  public:
    Head(emu::Chip &of, emu::Code &with, int n, int d) : chip(of), code(with), N(n), D(d) {}

    void forward(const void *q, const void *k, const void *v) {
        const float scale = 1 / std::sqrt((float)D);
        p.resize((size_t)N * (size_t)N);
        o.resize((size_t)(N * D));
        launch("products", q, k, p.data(), scale);
        launch("softmax", p.data(), nullptr, p.data(), 1);
        launch("weighted", p.data(), v, o.data(), 1);
    }
    void backward(const void *q, const void *k, const void *v, const void *dout) {
        const float scale = 1 / std::sqrt((float)D);
        Half g((size_t)N * (size_t)N);
        dq.resize(o.size()), dk.resize(o.size()), dv.resize(o.size());
        launch("turned", p.data(), dout, dv.data(), 1);
        launch("products", dout, v, g.data(), 1);
        launch("dscores", p.data(), g.data(), g.data(), 1);
        launch("weighted", g.data(), k, dq.data(), scale);
        launch("turned", g.data(), q, dk.data(), scale);
    }
    Half p, o, dq, dk, dv;
    uint64_t bytes = 0; /* of all launches */

  private:
    void launch(const char *kernel, const void *a, const void *b, void *to, float scale) {
        const Params params = {(uint64_t)a, (uint64_t)b, (uint64_t)to, N, D, scale};
        emu::check(code.launch(kernel, {(uint64_t)&params, 0, 0}, N / ROWS, ROWS, STEP * D * 2));
        bytes += chip.last().load_bytes + chip.last().store_bytes;
    }
    emu::Chip &chip;
    emu::Code &code;
    int32_t N, D;
};

/* Bytes by the formula: S, P, dP and dS; what a block of rows meets; the rest once. */
inline uint64_t forward_bytes(uint64_t N, uint64_t D) {
    return (4 * N * N + (2 * (N / ROWS) + 2) * N * D) * 2;
}
inline uint64_t backward_bytes(uint64_t N, uint64_t D) {
    return (7 * N * N + (4 * (N / ROWS) + 4) * N * D) * 2;
}

} // namespace standard

#endif
