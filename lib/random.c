/* random.c: attn_random: tensors of random numbers that have the same bits everywhere.

   Who calls it: users and tests. Element n is a function of (seed, n) alone; docs/random.md is its
   definition for everyone. It uses Philox and + - * / sqrt of double, which are exactly rounded on
   every machine, and no library function:

       words w0..w3 of block n / 4
         uniform    element 4g+j:           (wj >> 8) / 2^24
         normal     elements 4g,   4g+1:    r cos a, r sin a   from w0, w1   (Box and Muller 1958)
                    elements 4g+2, 4g+3:    the same           from w2, w3
       rounded to f32, then to the tensor's type */
#include "stage.h"

#include <math.h>
#include <string.h>

enum { TERMS = 8, MOST_RANK = ATTN__AXES, PART = 8 << 20 };

/* Natural logarithm of a finite x > 0: x = 2^e m with m in [3/4, 3/2), then
   log m = 2 (s + s^3/3 + s^5/5 ...) of s = (m - 1) / (m + 1), |s| <= 1/5. */
static double log_series(double x) {
    static const double odd[TERMS] = {1.0,     1.0 / 3,  1.0 / 5,  1.0 / 7,
                                      1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15};
    const double ln2 = 0.693147180559945309417;
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 52) - 1023;
    u = (u & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &u, sizeof m);
    if (m >= 1.5) {
        m *= 0.5;
        e++;
    }
    const double s = (m - 1.0) / (m + 1.0);
    const double s2 = s * s;
    double sum = 0.0;
    for (int k = TERMS - 1; k >= 0; k--) {
        sum = sum * s2 + odd[k];
    }
    return e * ln2 + 2.0 * s * sum;
}

/* Sine and cosine of a in [0, pi/2]: Taylor, nested: sin a = a (1 - a^2/2*3 (1 - a^2/4*5 (...))) */
static void sin_cos(double a, double *sine, double *cosine) {
    static const double f[TERMS] = {1.0 / 6,   1.0 / 20,  1.0 / 42,  1.0 / 72,
                                    1.0 / 110, 1.0 / 156, 1.0 / 210, 1.0 / 272};
    static const double g[TERMS] = {1.0 / 2,  1.0 / 12,  1.0 / 30,  1.0 / 56,
                                    1.0 / 90, 1.0 / 132, 1.0 / 182, 1.0 / 240};
    const double a2 = a * a;
    double s = 1.0, c = 1.0;
    for (int k = TERMS - 1; k >= 0; k--) {
        s = 1.0 - a2 * f[k] * s;
        c = 1.0 - a2 * g[k] * c;
    }
    *sine = a * s;
    *cosine = c;
}

/* Two normal numbers from two words: the radius from the first, the angle from the second, of which
   two bits are the quarter turn. */
static void normal_pair(uint32_t w0, uint32_t w1, float *x, float *y) {
    const double u = (w0 + 0.5) / 4294967296.0;
    const double r = sqrt(-2.0 * log_series(u));
    const double a = ((w1 & 0x3fffffffu) + 0.5) / 1073741824.0 * 1.57079632679489661923;
    double s, c;
    sin_cos(a, &s, &c);
    const uint32_t quarter = w1 >> 30;
    *x = (float)(r * (quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s));
    *y = (float)(r * (quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c));
}

/* Elements 4g .. 4g+3. Word 3 of the counter keeps clear of dropout's, word 2 names the
   distribution. */
static void block(int distribution, uint64_t seed, uint64_t g, float out[4]) {
    const uint32_t counter[4] = {(uint32_t)g, (uint32_t)(g >> 32), (uint32_t)distribution,
                                 0xffffffffu};
    uint32_t w[4];
    attn__philox(seed, counter, w);
    if (distribution == ATTN_NORMAL) {
        normal_pair(w[0], w[1], &out[0], &out[1]);
        normal_pair(w[2], w[3], &out[2], &out[3]);
        return;
    }
    for (int j = 0; j < 4; j++) {
        out[j] = (float)(w[j] >> 8) / 16777216.0f;
    }
}

/* A row of the last axis: n elements from number `first` on. */
static void row(char *to, int type, int64_t step, int64_t n, int distribution, uint64_t seed,
                uint64_t first) {
    float x[4];
    int64_t i = 0;
    while (i < n) {
        const uint64_t at = first + (uint64_t)i;
        const int skip = (int)(at % 4);
        const int64_t most = n - i < 4 - skip ? n - i : 4 - skip;
        block(distribution, seed, at / 4, x);
        attn__store_f32(to + i * step * attn__type_bytes(type), type, step, x + skip, most);
        i += most;
    }
}

static int check(const attn_device *device, const attn_tensor *t, int distribution) {
    ATTN_TRY(attn__device_check(device));
    if (!t) {
        return attn__fail(ATTN_INVALID, "tensor", "tensor is NULL");
    }
    if (distribution != ATTN_NORMAL && distribution != ATTN_UNIFORM) {
        return attn__fail(ATTN_INVALID, "distribution",
                          "distribution is %d; ATTN_NORMAL (1) and ATTN_UNIFORM (2) are allowed",
                          distribution);
    }
    ATTN_TRY(attn__tensor_check(device, t, "tensor", 0));
    const int type = attn__type_of(t);
    if (type == ATTN_I32 || type == ATTN_U8 || type == ATTN_BOOL) {
        return attn__fail(ATTN_DTYPE, "tensor", "tensor is %s; floating-point types are allowed",
                          attn__type_name(type));
    }
    if (t->ndim > MOST_RANK) {
        return attn__fail(ATTN_SHAPE, "tensor", "tensor has rank %d; 0 to %d is allowed", t->ndim,
                          MOST_RANK);
    }
    return ATTN_OK;
}

/* Elements `first` and on of a whole, in host memory, not empty. */
static void fill(const attn_tensor *t, int distribution, uint64_t seed, uint64_t first) {
    const int last = t->ndim - 1;
    const int64_t n = last < 0 ? 1 : t->shape[last];
    const int64_t step = last < 0 ? 1 : attn__stride(t, last);
    int64_t index[MOST_RANK] = {0};
    char *at = (char *)t->data + t->byte_offset;
    do {
        row(at, attn__type_of(t), step, n, distribution, seed, first);
        first += (uint64_t)n;
    } while (attn__next_row(t, index, &at));
}

int attn_random(attn_device *device, const attn_tensor *tensor, int distribution, uint64_t seed,
                void *stream) {
    ATTN_TRY(check(device, tensor, distribution));
    ATTN_TRY(attn__stream_check(device, stream));
    int64_t st[MOST_RANK];
    attn__part part;
    attn__own own;
    attn__near near;
    for (int i = 0; i < tensor->ndim; i++) {
        st[i] = attn__stride(tensor, i);
    }
    if (!attn__part_first(&part, tensor->ndim, tensor->shape, PART)) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__check_steps("tensor", tensor->ndim, tensor->shape, st));
    do {
        attn__part_of(&part, tensor, &own);
        ATTN_TRY(attn__stage_in(device, &own.t, 0, stream, &near));
        fill(&near.own.t, distribution, seed, (uint64_t)part.first);
        ATTN_TRY(attn__stage_out(device, &own.t, stream, &near));
    } while (attn__part_next(&part));
    return ATTN_OK;
}
