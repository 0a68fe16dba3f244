/* refuse.c: calls that must be refused, with which status and about which argument.

   Who calls it: case.c for check=refuse. A point is right but for one thing: either its own fields
   are wrong, or a function here spoils its call. */
#include <math.h>
#include <string.h>

#include "suite.h"

/* One more along an axis; compact, so that no two elements share memory. */
static void longer(tensor *t, int axis) {
    t->shape[axis]++;
    t->t.strides = NULL;
}

static void k_dim(side *s) {
    s->t[ROLE_K].shape[3]++;
}
static void v_rows(side *s) {
    s->t[ROLE_V].shape[2]--;
}
static void k_batch(side *s) {
    s->t[ROLE_K].shape[0]++, s->t[ROLE_V].shape[0]++;
}
static void q_rank(side *s) {
    s->t[ROLE_Q].t.ndim = 2;
}
static void q_extent(side *s) {
    s->t[ROLE_Q].shape[2] = -1;
}
static void k_type(side *s) {
    s->t[ROLE_K].t.dtype.bits ^= 48;
}
static void q_type(side *s) {
    s->t[ROLE_Q].t.dtype = (attn_dtype){0, 32, 1};
}
static void q_lanes(side *s) {
    s->t[ROLE_Q].t.dtype.lanes = 2;
}
static void o_type(side *s) {
    s->t[ROLE_O].t.dtype = (attn_dtype){1, 8, 1};
}
static void q_device(side *s) {
    s->t[ROLE_Q].t.device = (attn_device_id){99, 0};
}
static void q_last(side *s) {
    s->t[ROLE_Q].strides[3] = 2;
}
static void dout_last(side *s) {
    s->t[ROLE_DOUT].strides[3] = 2;
}
static void q_reach(side *s) {
    s->t[ROLE_Q].strides[2] = INT64_MAX / 2;
}
static void lse_shape(side *s) {
    longer(&s->t[ROLE_LSE], 2);
}
static void lse_missing(side *s) {
    s->call.lse = NULL;
}
static void o_missing(side *s) {
    s->call.o = NULL;
}
static void dout_shape(side *s) {
    longer(&s->t[ROLE_DOUT], 1);
}
static void dv_shape(side *s) {
    longer(&s->t[ROLE_DV], 3);
}
static void sink_shape(side *s) {
    longer(&s->t[ROLE_SINK], 0);
}
static void k_used_shape(side *s) {
    longer(&s->t[ROLE_K_USED], 0);
}
static void offsets_missing(side *s) {
    s->call.q_offsets = NULL;
}
static void offsets_shape(side *s) {
    s->t[ROLE_K_OFFSETS].shape[0]--;
}
static void scale_nan(side *s) {
    s->call.flags |= ATTN_SCALE_GIVEN, s->call.scale = NAN;
}
static void scale_inf(side *s) {
    s->call.flags |= ATTN_SCALE_GIVEN, s->call.scale = INFINITY;
}
static void scale_unsaid(side *s) {
    s->call.scale = 0.5;
}
static void k_scale_shape(side *s) {
    s->t[ROLE_K_SCALE].shape[1] += 3;
}
static void dropout_one(side *s) {
    s->call.dropout = 1;
}
static void dropout_below(side *s) {
    s->call.dropout = -0.1;
}
static void dropout_nan(side *s) {
    s->call.dropout = NAN;
}
static void counts_shape(side *s) {
    longer(&s->t[ROLE_COUNTS], 2);
}
static void block_rows(side *s) {
    s->blocks.bm = 0;
}
static void flag_unknown(side *s) {
    s->call.flags |= 1u << 30;
}
static void capture_missing(side *s) {
    s->call.n_captures = 0;
}
static void capture_rank(side *s) {
    s->value[0].t.ndim--;
}
static void capture_type(side *s) {
    s->value[0].t.dtype = (attn_dtype){2, 64, 1};
}
static void capture_twice(side *s) {
    s->capture[1] = s->capture[0], s->call.n_captures = 2;
}
static void grad_shape(side *s) {
    longer(&s->grad[0], 0);
}

typedef struct refusal {
    const char *name;
    void (*spoil)(side *s); /* NULL: the point itself is wrong */
    int status;
    const char *arg;
} refusal;

#define SPOILT(name, status, arg)                                                                  \
    { #name, name, ATTN_##status, arg }
static const refusal refusals[] = {
    SPOILT(k_dim, SHAPE, "k"),
    SPOILT(v_rows, SHAPE, "v"),
    SPOILT(k_batch, SHAPE, "k"),
    SPOILT(q_rank, SHAPE, "q"),
    SPOILT(q_extent, SHAPE, "q"),
    SPOILT(k_type, DTYPE, "k"),
    SPOILT(q_type, DTYPE, "q"),
    SPOILT(q_lanes, DTYPE, "q"),
    SPOILT(o_type, DTYPE, "o"),
    SPOILT(q_device, DEVICE, "q"),
    SPOILT(q_last, LAYOUT, "q"),
    SPOILT(dout_last, LAYOUT, "dout"),
    SPOILT(q_reach, LAYOUT, "q"),
    SPOILT(lse_shape, SHAPE, "lse"),
    SPOILT(lse_missing, INVALID, "lse"),
    SPOILT(o_missing, INVALID, "o"),
    SPOILT(dout_shape, SHAPE, "dout"),
    SPOILT(dv_shape, SHAPE, "dv"),
    SPOILT(sink_shape, SHAPE, "sink"),
    SPOILT(k_used_shape, SHAPE, "k_used"),
    SPOILT(offsets_missing, INVALID, "q_offsets"),
    SPOILT(offsets_shape, SHAPE, "k_offsets"),
    SPOILT(scale_nan, INVALID, "scale"),
    SPOILT(scale_inf, INVALID, "scale"),
    SPOILT(scale_unsaid, INVALID, "scale"),
    SPOILT(k_scale_shape, SHAPE, "k_scale"),
    SPOILT(dropout_one, INVALID, "dropout"),
    SPOILT(dropout_below, INVALID, "dropout"),
    SPOILT(dropout_nan, INVALID, "dropout"),
    SPOILT(counts_shape, SHAPE, "blocks.counts"),
    SPOILT(block_rows, INVALID, "blocks.bm"),
    SPOILT(flag_unknown, INVALID, "flags"),
    SPOILT(capture_missing, CAPTURE, "captures.bias"),
    SPOILT(capture_rank, SHAPE, "captures.bias"),
    SPOILT(capture_type, DTYPE, "captures.bias"),
    SPOILT(capture_twice, CAPTURE, "captures.bias"),
    SPOILT(grad_shape, SHAPE, "captures.bias.grad"),
    {"alignment", NULL, ATTN_INVALID, "alignment"},
    {"groups", NULL, ATTN_SHAPE, "k"},
    {"head_dim", NULL, ATTN_SHAPE, "q"},
    {"o_overlap", NULL, ATTN_LAYOUT, "o"},
    {"dk_overlap", NULL, ATTN_LAYOUT, "dk"},
    {"origin", NULL, ATTN_INVALID, "nh"},
    {"total", NULL, ATTN_INVALID, "nk"},
    {"counter", NULL, ATTN_INVALID, "dropout"},
    {"overflow", NULL, ATTN_VARIANT, "variant"},
    {"ready", NULL, ATTN_INVALID, "l"},
    {"text", NULL, ATTN_PARSE, "text"},
};

static void expect(const refusal *r, int status, char *why) {
    if (status != r->status) {
        complain(why, "%s: status %s; it must be refused with %s", r->name,
                 attn_status_name(status), attn_status_name(r->status));
    } else if (strcmp(attn_error_arg(), r->arg) != 0 || strlen(attn_error()) < 10) {
        complain(why, "%s: refused about \"%s\" with \"%s\"; it must be about \"%s\"", r->name,
                 attn_error_arg(), attn_error(), r->arg);
    }
}

/* What only the run can see: sizes above the plan's, and memory that breaks the promise. */
static void refuse_run(const suite *suite, const point *p, const refusal *r, outcome *out) {
    setup s;
    point small = *p;
    side planned;
    attn_plan *plan = NULL;
    small.NK -= r->status == ATTN_MISMATCH;
    if (setup_new(&s, p, suite->ref, suite->dev, out->why) == 0 &&
        side_build(&planned, suite->dev, &small, NULL, 0, 0, 0, out->why) == 0 &&
        plan_of(&planned, &planned.call, NULL, ATTN_FORWARD, &plan, out->why) == 0) {
        attn_plan_info info = {.size = sizeof info};
        void *workspace = NULL;
        attn_plan_query(plan, &info);
        attn_buffer_new(suite->dev, info.workspace + 64, &workspace);
        expect(r, attn_run(plan, &s.dev.call, workspace, NULL), out->why);
        attn_buffer_release(suite->dev, workspace);
    }
    attn_plan_release(plan);
    setup_free(&s);
}

static void refuse_plan(const suite *suite, const point *p, const refusal *r, outcome *out) {
    attn_variant *variant = NULL;
    attn_plan *plan = NULL;
    cap caps[CAPTURES];
    int n_caps = 0;
    side s;
    char why[WHY] = "";
    const int status = variant_of(p->variant, &variant, why);
    if (status < 0) {
        expect(r, status, out->why);
    } else if (caps_of(p, variant, caps, &n_caps, out->why) == 0 &&
               side_build(&s, suite->dev, p, caps, n_caps, 0, 0, out->why) == 0) {
        if (r->spoil) {
            r->spoil(&s);
        }
        const int direction = p->dir == DIR_BWD ? ATTN_BACKWARD : ATTN_FORWARD;
        expect(r, attn_plan_new(suite->dev, direction, &s.call, variant, &plan), out->why);
        attn_plan_release(plan);
    }
    attn_variant_release(variant);
}

void check_refusal(const suite *suite, const point *p, outcome *out) {
    static const refusal runs[] = {{"larger_run", NULL, ATTN_MISMATCH, "k"},
                                   {"promise", NULL, ATTN_LAYOUT, "q"}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (strcmp(runs[i].name, p->wrong) == 0) {
            refuse_run(suite, p, &runs[i], out);
            return;
        }
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (strcmp(refusals[i].name, p->wrong) == 0) {
            refuse_plan(suite, p, &refusals[i], out);
            return;
        }
    }
    complain(out->why, "wrong=\"%s\" is unknown", p->wrong);
}
