/* dropout_mask.c: attn_dropout: the whole mask of a call, for those who want to see it.

   Who calls it: the public API. */
#include "attn_int.h"

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
    ATTN_TRY(attn__dropout_in(&c, 0, &p));
    ATTN_TRY(attn__tensor_view(device, keep, &want, 0, &view));
    p.B = view.n[0];
    p.H = view.n[1];
    p.HK = 1; /* not known here, and of no influence */
    p.NQ = view.n[2];
    p.NK = view.n[3];
    ATTN_TRY(attn__origins_in(&c, &p));
    for (int64_t b = 0; b < p.B; b++) {
        for (int64_t h = 0; h < p.H; h++) {
            const uint32_t bh = (uint32_t)((p.b0 + b) * p.nh + p.h0 + h);
            for (int64_t row = 0; row < p.NQ; row++) {
                attn__dropout_row(&p, bh, (uint32_t)(p.i0 + row), p.k0, (int)p.NK,
                                  (uint8_t *)attn__at(&view, b, h, row));
            }
        }
    }
    return ATTN_OK;
}
