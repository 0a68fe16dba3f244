/* dropout_mask.c: attn_dropout: the whole mask of a call, for those who want to see it.

   Who calls it: the public API. */
#include "stage.h"

enum { PART = 8 << 20 };

/* A box of the mask, in host memory. */
static void fill(const attn__problem *p, const attn__part *part, const attn_tensor *keep) {
    for (int64_t b = 0; b < part->n[0]; b++) {
        for (int64_t h = 0; h < part->n[1]; h++) {
            const int64_t head = p->h0 + part->at[1] + h;
            const uint32_t bh = (uint32_t)((p->b0 + part->at[0] + b) * p->nh + head);
            for (int64_t row = 0; row < part->n[2]; row++) {
                const int64_t at = b * keep->strides[0] + h * keep->strides[1];
                attn__dropout_row(p, bh, (uint32_t)(p->i0 + part->at[2] + row), p->k0 + part->at[3],
                                  (int)part->n[3],
                                  (uint8_t *)keep->data + at + row * keep->strides[2]);
            }
        }
    }
}

static int fill_parts(attn_device *device, const attn__problem *p, const attn_tensor *keep,
                      void *stream) {
    attn__part part;
    attn__own own;
    attn__near near;
    if (!attn__part_first(&part, keep->ndim, keep->shape, PART)) {
        return ATTN_OK;
    }
    do {
        attn__part_of(&part, keep, &own);
        ATTN_TRY(attn__stage_in(device, &own.t, 0, stream, &near));
        fill(p, &part, &near.own.t);
        ATTN_TRY(attn__stage_out(device, &own.t, stream, &near));
    } while (attn__part_next(&part));
    return ATTN_OK;
}

/* Padded lengths: the call's origins and totals count, its tensors are not looked at. */
int attn_dropout(attn_device *device, const attn_call *call, const attn_tensor *keep,
                 void *stream) {
    static const int u8_types[] = {ATTN_U8, 0};
    const attn__want want = {"keep", "bhnd", "u8 [B][H][NQ][NK]", u8_types, 1};
    attn_call c;
    attn__problem p = {0};
    attn__view view;
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__stream_check(device, stream));
    ATTN_TRY(attn__struct_in(&c, sizeof c, call, "attn_call"));
    ATTN_TRY(attn__check_flags(c.flags));
    ATTN_TRY(attn__dropout_in(device, &c, 0, &p));
    ATTN_TRY(attn__tensor_view(device, keep, &want, 0, &view));
    p.B = view.n[0];
    p.H = view.n[1];
    p.HK = 1; /* not known here, and of no influence */
    p.NQ = view.n[2];
    p.NK = view.n[3];
    ATTN_TRY(attn__origins_in(&c, &p));
    if (p.seed_at) {
        ATTN_TRY(attn__device_read(device, &p.seed, p.seed_at, sizeof p.seed));
    }
    return fill_parts(device, &p, keep, stream);
}
