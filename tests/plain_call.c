/* plain_call.c: what an attn_call says, worked out from attn.h alone; see plain.h. */
#include "plain.h"

#include <math.h>
#include <string.h>

int64_t plain_stride(const attn_tensor *t, int axis) {
    int64_t st = 1;
    if (t->strides) {
        return t->strides[axis];
    }
    for (int i = t->ndim - 1; i > axis; i--) {
        st *= t->shape[i];
    }
    return st;
}

static const char *at_element(const attn_tensor *t, int64_t n) {
    return (const char *)t->data + t->byte_offset + n * (t->dtype.bits / 8);
}

void plain_read_row(float *to, plain_plane x, int64_t b, int64_t h, int64_t row, int64_t n) {
    const int64_t i0 = x.packed ? row : b, i1 = h, i2 = x.packed ? 0 : row;
    const int64_t at = i0 * plain_stride(x.t, 0) + i1 * plain_stride(x.t, 1) +
                       (x.packed ? 0 : i2 * plain_stride(x.t, 2));
    attn__load_f32(to, at_element(x.t, at), attn__type_of(x.t), n, 1);
}

double plain_number(const attn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    const int64_t index[4] = {i0, i1, i2, i3};
    int64_t n = 0;
    for (int a = 0; a < t->ndim; a++) {
        n += index[a] * plain_stride(t, a);
    }
    return attn__get(at_element(t, n), attn__type_of(t));
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

plain_span plain_span_of(const attn_tensor *t, const attn_tensor *offsets, const attn_tensor *used,
                         int64_t b) {
    plain_span s = {0, offsets ? 0 : t->shape[2]};
    if (offsets) {
        s.row = clamp((int64_t)plain_number(offsets, b, 0, 0, 0), 0, t->shape[0]);
        s.n = clamp((int64_t)plain_number(offsets, b + 1, 0, 0, 0), s.row, t->shape[0]) - s.row;
    }
    if (used) {
        s.n = clamp((int64_t)plain_number(used, b, 0, 0, 0), 0, s.n);
    }
    return s;
}

double plain_scale_at(const attn_tensor *t, int64_t H, int64_t HK, int64_t b, int64_t h,
                      int64_t row) {
    if (!t) {
        return 1;
    }
    if (t->ndim == 1) {
        return plain_number(t, 0, 0, 0, 0);
    }
    return plain_number(t, b, t->shape[1] == HK ? h / (H / HK) : h, row / 128, 0);
}

int plain_listed(const attn_blocks *blocks, int64_t b, int64_t h, int64_t row, int64_t key) {
    const attn_tensor *const n = blocks->counts, *const at = blocks->indices;
    const int64_t line = row / blocks->bm;
    const int64_t count =
        (int64_t)plain_number(n, n->shape[0] == 1 ? 0 : b, n->shape[1] == 1 ? 0 : h, line, 0);
    for (int64_t i = 0; i < count && i < at->shape[3]; i++) {
        const double listed =
            plain_number(at, at->shape[0] == 1 ? 0 : b, at->shape[1] == 1 ? 0 : h, line, i);
        if (listed == (double)(key / blocks->bn)) {
            return 1;
        }
    }
    return 0;
}

/* -- Dropout: Philox4x32-7, as DESIGN.md section 6 numbers it ---------------------------------- */
plain_dropper plain_dropper_of(const attn_call *c) {
    plain_dropper d = {c->seed, c->offset, 0, 1};
    if (c->seed_at) {
        memcpy(&d.seed, c->seed_at, sizeof d.seed);
    }
    if (c->dropout > 0) {
        d.threshold = (uint32_t)clamp((int64_t)floor(65536 * c->dropout + 0.5), 1, 65535);
        d.factor = 65536.0 / (65536.0 - d.threshold);
    }
    return d;
}

static void philox7(uint64_t key, uint32_t c[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 7; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t x0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, x2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = x0, c[1] = (uint32_t)b, c[2] = x2, c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

void plain_keep_row(const plain_dropper *d, uint32_t bh, uint32_t i, int64_t k0, int64_t n,
                    uint8_t *keep) {
    for (int64_t j = 0; j < n; j++) {
        const uint32_t k = (uint32_t)(k0 + j);
        uint32_t c[4] = {bh, i, 4 * (k / 32) + (k % 8) / 2, d->offset};
        philox7(d->seed, c);
        const uint32_t word = c[(k % 32) / 8];
        keep[j] = (k % 2 ? word >> 16 : word & 0xffff) >= d->threshold;
    }
}

uint32_t plain_keep_head(const attn_call *c, int64_t H, int64_t b, int64_t h) {
    return (uint32_t)((b + c->b0) * (c->nh ? c->nh : H) + h + c->h0);
}

void plain_dropout(const attn_call *call, uint8_t *keep) {
    const plain_dropper d = plain_dropper_of(call);
    const int64_t B = call->q->shape[0], H = call->q->shape[1], NQ = call->q->shape[2],
                  NK = call->k->shape[2];
    for (int64_t row = 0; row < B * H * NQ; row++) {
        const int64_t b = row / (H * NQ), h = row / NQ % H, i = row % NQ;
        plain_keep_row(&d, plain_keep_head(call, H, b, h), (uint32_t)(i + call->i0), call->k0, NK,
                       keep + row * NK);
    }
}
