/* merge.c: attn_merge: partial results over disjoint keys become one.

   Who calls it: the public API. A state is (o, lse); a sink is the state (0, sink). In double:

       m = max lse_i, w_i = exp(lse_i - m), o = sum w_i o_i / sum w_i, lse = m + log sum w_i

   An empty state (0, -inf) is left out, so that merging with it changes no bit. NaN stays NaN. */
#include "stage.h"

#include <math.h>
#include <stdlib.h>

enum { PIECE = 128, HOST = 1, PART = 1 << 20 };

/* 2n + 3 views, one state after the other. */
typedef struct merge {
    int n;
    attn__view *o, *lse; /* [n] */
    attn__view o_out, lse_out, sink;
} merge;

static const int o_types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16, 0};
static const int lse_types[] = {ATTN_F64, ATTN_F32, 0};
static const int sink_types[] = {ATTN_F32, 0};

static int read(const attn_device *device, const attn_tensor *t, int is_lse, int packed,
                const char *name, int output, attn__view *view) {
    const int ref = device->engine == &attn__ref;
    const attn__want o = {name, packed ? "nhd" : "bhnd", packed ? "[T][H][DV]" : "[B][H][N][DV]",
                          o_types + !ref, output};
    const attn__want lse = {name, packed ? "hn" : "bhn", packed ? "[H][T]" : "[B][H][N]",
                            lse_types + !ref, output};
    return attn__tensor_view(device, t, is_lse ? &lse : &o, 0, view);
}

/* Extents as o_out has them; an lse has rows of one. */
static int same(const merge *m, const attn__view *t, int is_lse, const char *name) {
    for (int i = 0; i < 4; i++) {
        const int64_t want = i == 3 && is_lse ? 1 : m->o_out.n[i];
        if (t->n[i] != want) {
            return attn__fail(ATTN_SHAPE, name, "%s has extent %lld where o_out has %lld", name,
                              (long long)t->n[i], (long long)want);
        }
    }
    return ATTN_OK;
}

static int same_view(const attn__view *a, const attn__view *b) {
    int same = a->data == b->data && a->type == b->type;
    for (int i = 0; i < 4; i++) {
        same &= a->n[i] < 2 || a->st[i] == b->st[i];
    }
    return same;
}

/* A row is read whole before it is written: o_out may be one of o, and lse_out one of lse. */
static int check_aliases(const merge *m) {
    const void *const o = m->o_out.data, *const lse = m->lse_out.data;
    ATTN_TRY(attn__check_alias("lse_out", lse, "o_out", o));
    ATTN_TRY(attn__check_alias("lse_out", lse, "sink", m->sink.data));
    ATTN_TRY(attn__check_alias("o_out", o, "sink", m->sink.data));
    for (int i = 0; i < m->n; i++) {
        const attn__view *const from = &m->o[i], *const with = &m->lse[i];
        ATTN_TRY(attn__check_alias("o_out", o, "lse", with->data));
        ATTN_TRY(attn__check_alias("lse_out", lse, "o", from->data));
        if (!same_view(&m->o_out, from)) {
            ATTN_TRY(attn__check_alias("o_out", o, "o", from->data));
        }
        if (!same_view(&m->lse_out, with)) {
            ATTN_TRY(attn__check_alias("lse_out", lse, "lse", with->data));
        }
    }
    return ATTN_OK;
}

static int read_all(merge *m, const attn_device *device, const attn_tensor *const *o,
                    const attn_tensor *const *lse, const attn_tensor *sink,
                    const attn_tensor *o_out, const attn_tensor *lse_out) {
    const attn__want want = {"sink", "h", "[H]", sink_types, 0};
    const int packed = o_out && o_out->ndim == 3;
    ATTN_TRY(read(device, o_out, 0, packed, "o_out", 1, &m->o_out));
    if (lse_out) {
        ATTN_TRY(read(device, lse_out, 1, packed, "lse_out", 1, &m->lse_out));
        ATTN_TRY(same(m, &m->lse_out, 1, "lse_out"));
    }
    if (sink) {
        ATTN_TRY(attn__tensor_view(device, sink, &want, 0, &m->sink));
        if (m->sink.n[1] != m->o_out.n[1]) {
            return attn__fail(ATTN_SHAPE, "sink", "sink has %lld heads; o_out has %lld",
                              (long long)m->sink.n[1], (long long)m->o_out.n[1]);
        }
    }
    for (int i = 0; i < m->n; i++) {
        ATTN_TRY(read(device, o[i], 0, packed, "o", 0, &m->o[i]));
        ATTN_TRY(read(device, lse[i], 1, packed, "lse", 0, &m->lse[i]));
        ATTN_TRY(same(m, &m->o[i], 0, "o"));
        ATTN_TRY(same(m, &m->lse[i], 1, "lse"));
    }
    return check_aliases(m);
}

static double lse_of(const merge *m, int i, int64_t b, int64_t h, int64_t row) {
    return attn__get(attn__at(&m->lse[i], b, h, row), m->lse[i].type);
}

static void merge_row(const merge *m, int64_t b, int64_t h, int64_t row) {
    const double sink =
        m->sink.type ? attn__get(attn__at(&m->sink, 0, h, 0), m->sink.type) : -INFINITY;
    double top = sink;
    for (int i = 0; i < m->n; i++) {
        const double x = lse_of(m, i, b, h, row);
        top = x > top || isnan(x) ? x : top;
    }
    double sum = top == -INFINITY ? 1 : exp(sink - top);
    for (int i = 0; i < m->n && top != -INFINITY; i++) {
        sum += exp(lse_of(m, i, b, h, row) - top);
    }
    char *const to = attn__at(&m->o_out, b, h, row);
    const int64_t D = m->o_out.n[3];
    for (int64_t at = 0; at < D; at += PIECE) {
        const int64_t n = D - at < PIECE ? D - at : PIECE;
        double acc[PIECE] = {0};
        for (int i = 0; i < m->n; i++) {
            const attn__view *const o = &m->o[i];
            const double x = lse_of(m, i, b, h, row), w = exp(x - top) / sum;
            const char *const from = attn__at(o, b, h, row) + at * o->bytes;
            for (int64_t j = 0; x != -INFINITY && j < n; j++) {
                acc[j] += w * attn__get(from + j * o->bytes, o->type);
            }
        }
        for (int64_t j = 0; j < n; j++) {
            const double x = isnan(sum) ? sum : acc[j];
            attn__set(to + (at + j) * m->o_out.bytes, m->o_out.type, x);
        }
    }
    if (m->lse_out.type) {
        attn__set(attn__at(&m->lse_out, b, h, row), m->lse_out.type, top + log(sum));
    }
}

static void merge_rows(const merge *m) {
    for (int64_t b = 0; b < m->o_out.n[0]; b++) {
        for (int64_t h = 0; h < m->o_out.n[1]; h++) {
            for (int64_t row = 0; row < m->o_out.n[2]; row++) {
                merge_row(m, b, h, row);
            }
        }
    }
}

/* -- Memory that is not the host's ------------------------------------------------------------- */

/* A view's box as a tensor of the device; of the sink its heads, of an lse all but elements. */
static void box_of(const attn__part *box, const attn_device *device, const attn__view *v,
                   attn__own *of) {
    char *at = v->data;
    of->t = (attn_tensor){.device = {(int32_t)device->kind, device->index},
                          .ndim = 4,
                          .dtype = {(uint8_t)(v->type & 255), (uint8_t)(v->type >> 8), 1},
                          .shape = of->shape,
                          .strides = of->strides};
    for (int i = 0; i < 4; i++) {
        of->shape[i] = v->n[i] < box->n[i] ? v->n[i] : box->n[i];
        of->strides[i] = v->st[i];
        at += (v->n[i] > 1 ? box->at[i] : 0) * v->st[i] * v->bytes;
    }
    of->t.data = at;
}

/* The views of a box, on the device and in host memory. */
typedef struct staged {
    attn__own far;
    attn__near near;
} staged;

static int stage_view(attn_device *device, const attn__part *box, const attn__view *from, int fetch,
                      void *stream, staged *s, attn__view *view) {
    *view = *from;
    s->near.memory = NULL;
    if (!from->type) {
        return ATTN_OK;
    }
    box_of(box, device, from, &s->far);
    ATTN_TRY(attn__stage_in(device, &s->far.t, fetch, stream, &s->near));
    view->data = s->near.own.t.data;
    for (int i = 0; i < 4; i++) {
        view->n[i] = s->near.own.t.shape[i];
        view->st[i] = s->near.own.t.strides[i];
    }
    return ATTN_OK;
}

/* places: 2n + 3, as the views of a merge. */
static int merge_box(attn_device *device, const merge *m, const attn__part *box, void *stream,
                     merge *part, staged *places) {
    int status = stage_view(device, box, &m->o_out, 0, stream, &places[0], &part->o_out);
    int held = 1;
    const struct {
        const attn__view *from;
        attn__view *to;
        int fetch;
    } single[] = {{&m->lse_out, &part->lse_out, 0}, {&m->sink, &part->sink, 1}};
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = stage_view(device, box, single[i].from, single[i].fetch, stream, &places[held++],
                            single[i].to);
    }
    for (int i = 0; i < 2 * m->n && status == ATTN_OK; i++) {
        status = stage_view(device, box, &m->o[i], 1, stream, &places[held++], &part->o[i]);
    }
    if (status == ATTN_OK) {
        merge_rows(part);
        status = attn__stage_out(device, &places[0].far.t, stream, &places[0].near);
    }
    if (status == ATTN_OK && m->lse_out.type) {
        status = attn__stage_out(device, &places[1].far.t, stream, &places[1].near);
    }
    while (held-- > 0) {
        attn__stage_drop(&places[held].near);
    }
    return status;
}

static int merge_far(attn_device *device, const merge *m, void *stream) {
    const size_t n = 2 * (size_t)m->n;
    attn__part box;
    attn__view *const views = attn__alloc(n * sizeof *views, "a merge");
    staged *const places = attn__alloc((n + 3) * sizeof *places, "a merge");
    merge part = {.n = m->n, .o = views, .lse = views + m->n};
    int status = views && places ? ATTN_OK : ATTN_MEMORY;
    if (status == ATTN_OK && attn__part_first(&box, 4, m->o_out.n, PART)) {
        do {
            /* Whole rows: a row of up to PART elements is not cut. */
            status = merge_box(device, m, &box, stream, &part, places);
        } while (status == ATTN_OK && attn__part_next(&box));
    }
    free(views);
    free(places);
    return status;
}

int attn_merge(attn_device *device, int n, const attn_tensor *const *o,
               const attn_tensor *const *lse, const attn_tensor *sink, const attn_tensor *o_out,
               const attn_tensor *lse_out, void *stream) {
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__stream_check(device, stream));
    if (n < 0 || (n > 0 && (!o || !lse))) {
        return attn__fail(ATTN_INVALID,
                          n < 0 ? "n"
                          : o   ? "lse"
                                : "o",
                          "n is %d, o is %s and lse is %s; n of each are wanted", n,
                          o ? "given" : "NULL", lse ? "given" : "NULL");
    }
    attn__view *const views = attn__alloc(2 * (size_t)n * sizeof *views, "a merge");
    if (!views) {
        return ATTN_MEMORY;
    }
    merge m = {.n = n, .o = views, .lse = views + n};
    int status = read_all(&m, device, o, lse, sink, o_out, lse_out);
    if (status == ATTN_OK && device->kind == HOST) {
        merge_rows(&m);
    } else if (status == ATTN_OK) {
        status = merge_far(device, &m, stream);
    }
    free(views);
    return status;
}
