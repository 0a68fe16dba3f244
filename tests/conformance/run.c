/* run.c: sets both sides up, plans and runs; see suite.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* Visits every tensor that is read, or every one that is written. */
static tensor *nth(side *s, int i) {
    return i < ROLES              ? &s->t[i]
           : i < ROLES + CAPTURES ? &s->value[i - ROLES]
                                  : &s->grad[i - ROLES - CAPTURES];
}
enum { TENSORS = ROLES + 2 * CAPTURES };
static int is_output(int i) {
    return i < ROLES ? role_is_output((role)i) : i >= ROLES + CAPTURES;
}

/* Where entries share memory, the first one is written for all. */
static int copy_input(const tensor *to, const tensor *from, char *why) {
    tensor target = *to, source = *from;
    target.t.shape = target.shape;
    source.t.shape = source.shape;
    for (int i = 0; i < target.t.ndim; i++) {
        if (target.strides[i] == 0 && target.shape[i] > 1) {
            target.shape[i] = source.shape[i] = 1;
        }
    }
    target.t.strides = target.strides;
    source.t.strides = source.strides;
    return tensor_copy(&target, &source, why);
}

int side_copy_inputs(side *to, const side *from, char *why) {
    int status = 0;
    for (int i = 0; i < TENSORS && status == 0; i++) {
        const tensor *const source = nth((side *)from, i), *const target = nth(to, i);
        if (source->memory && target->memory && !is_output(i)) {
            status = copy_input(target, source, why);
        }
    }
    return status;
}

int side_poison_outputs(side *s, char *why) {
    int status = 0;
    for (int i = 0; i < TENSORS && status == 0; i++) {
        if (nth(s, i)->memory && is_output(i)) {
            status = tensor_poison(nth(s, i), why);
        }
    }
    return status;
}

int setup_new(setup *s, const point *p, attn_device *ref, attn_device *dev, char *why) {
    memset(s, 0, sizeof *s);
    s->p = p;
    if (variant_of(p->variant, &s->variant, why) < 0 ||
        caps_of(p, s->variant, s->cap, &s->n_caps, why) < 0 ||
        side_build(&s->ref, ref, p, s->cap, s->n_caps, 1, 1, why) < 0 ||
        side_build(&s->dev, dev, p, s->cap, s->n_caps, 0, 1, why) < 0) {
        return -1;
    }
    fill_side(&s->ref, p, s->cap, s->n_caps);
    return side_copy_inputs(&s->dev, &s->ref, why);
}

void setup_free(setup *s) {
    attn_variant_release(s->variant);
    side_free(&s->ref);
    side_free(&s->dev);
}

/* -- Plans and runs ---------------------------------------------------------------------------- */
static const char *direction_text(int direction) {
    return direction == ATTN_FORWARD ? "forward" : "backward";
}

int plan_of(const side *s, const attn_call *shapes, const attn_variant *variant, int direction,
            attn_plan **plan, char *why) {
    *plan = NULL;
    const int status = attn_plan_new(s->device, direction, shapes, variant, plan);
    if (status == ATTN_UNSUPPORTED) {
        return complain(why, UNSUPPORTED "%s: %s", attn_error_arg(), attn_error());
    }
    if (status < 0) {
        return complain(why, "%s plan refused: %s", direction_text(direction), attn_error());
    }
    return 0;
}

/* What stands in a workspace before means nothing: NaN and numbers that are not 0. */
static void soil(const side *s, void *workspace, uint64_t bytes) {
    attn_device_info info = {.size = sizeof info};
    if (workspace && attn_device_query(s->device, &info) >= 0 && info.kind == 1) {
        memset(workspace, 0xff, (size_t)bytes);
    }
}

int run_plan(const side *s, const attn_plan *plan, const attn_call *call, char *why) {
    attn_plan_info info = {.size = sizeof info};
    void *workspace = NULL;
    if (attn_plan_query(plan, &info) < 0) {
        return complain(why, "attn_plan_query: %s", attn_error());
    }
    if (info.workspace && attn_buffer_new(s->device, info.workspace, &workspace) < 0) {
        return complain(why, "workspace of %llu bytes: %s", (unsigned long long)info.workspace,
                        attn_error());
    }
    soil(s, workspace, info.workspace);
    const int status = attn_run(plan, call, workspace, NULL);
    if (status < 0) {
        complain(why, "run refused: %s", attn_error());
    } else if (attn_stream_sync(s->device, NULL) < 0) {
        complain(why, "attn_stream_sync: %s", attn_error());
    }
    attn_buffer_release(s->device, workspace);
    return why[0] ? -1 : 0;
}

/* Forward, then backward if wanted: the call's plan may be made for `shapes`. */
static int run_as(const side *s, const point *p, const attn_call *shapes, const attn_call *call,
                  const attn_variant *variant, char *why) {
    int status = 0;
    for (int d = ATTN_FORWARD; d <= (p->dir == DIR_BWD ? ATTN_BACKWARD : ATTN_FORWARD); d++) {
        attn_plan *plan;
        status = status < 0 ? status : plan_of(s, shapes, variant, d, &plan, why);
        if (status == 0) {
            status = run_plan(s, plan, call, why);
            attn_plan_release(plan);
        }
    }
    return status;
}

int run_side(const side *s, const point *p, const attn_call *call, const attn_variant *variant,
             char *why) {
    return run_as(s, p, call, call, variant, why);
}

/* The point with larger sizes, for a plan that the real run fits in. */
static point larger(const point *p) {
    point q = *p;
    q.B += 1;
    q.NQ += 65;
    q.NK += 130;
    q.spare += 40;
    q.tb += q.tb ? 1 : 0;
    q.tq += q.tq ? 65 : 0;
    q.tk += q.tk ? 130 : 0;
    return q;
}

/* Every sequence has other lengths, everything a variant reads is NaN or false, and a plan with
   another mask ran in between: none of it may be remembered. */
static int run_stale(setup *s, const attn_plan *forward, char *why) {
    static const role lengths[] = {ROLE_Q_OFFSETS, ROLE_K_OFFSETS, ROLE_Q_USED, ROLE_K_USED};
    side *const dev = &s->dev;
    attn_variant *other = NULL;
    attn_call call = dev->call;
    int status = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const tensor *const t = &dev->t[lengths[i]];
        int32_t zero = 0;
        const int64_t strides[1] = {0};
        const attn_tensor zeros = {
            &zero, {1, 0}, 1, t->t.dtype, (int64_t *)t->shape, (int64_t *)strides, 0};
        if (t->memory && attn_tensor_copy(dev->device, &t->t, &zeros, NULL) < 0) {
            return complain(why, "attn_tensor_copy: %s", attn_error());
        }
    }
    status = run_plan(dev, forward, &dev->call, why);
    call.n_captures = 0;
    if (status == 0 && attn_variant_parse("k < 1 ? s * 3 : -inf", &other) < 0) {
        status = complain(why, "variant: %s", attn_error());
    }
    if (status == 0) {
        attn_plan *plan;
        status = plan_of(dev, &call, other, ATTN_FORWARD, &plan, why);
        status = status < 0 ? status : run_plan(dev, plan, &call, why);
        attn_plan_release(plan);
    }
    attn_variant_release(other);
    status = status < 0 ? status : side_copy_inputs(dev, &s->ref, why);
    return status < 0 ? status : side_poison_outputs(dev, why);
}

int run_dev(setup *s, char *why) {
    const point *const p = s->p;
    const point big = larger(p);
    side shapes = {0};
    attn_plan *plan[3] = {NULL, NULL, NULL};
    int status = 0;
    if (p->larger) {
        status = side_build(&shapes, s->dev.device, &big, s->cap, s->n_caps, 0, 0, why);
    }
    const attn_call *const planned = p->larger ? &shapes.call : &s->dev.call;
    const int last = p->dir == DIR_BWD ? ATTN_BACKWARD : ATTN_FORWARD;
    for (int d = ATTN_FORWARD; d <= last && status == 0; d++) {
        status = plan_of(&s->dev, planned, s->variant, d, &plan[d], why);
    }
    if (status == 0 && p->stale) {
        status = run_stale(s, plan[ATTN_FORWARD], why);
    }
    for (int d = ATTN_FORWARD; d <= last && status == 0; d++) {
        status = run_plan(&s->dev, plan[d], &s->dev.call, why);
    }
    for (int d = ATTN_FORWARD; d <= last; d++) {
        attn_plan_release(plan[d]);
    }
    return status;
}

/* -- Bits -------------------------------------------------------------------------------------- */
int side_bits(const side *s, unsigned skip, char **bits, size_t *n, char *why) {
    size_t size = 0, at = 0;
    int status = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < TENSORS && status == 0; i++) {
            const tensor *const t = nth((side *)s, i);
            if (!t->device || !is_output(i) || (i < ROLES && skip >> i & 1)) {
                continue;
            }
            const size_t bytes = (size_t)tensor_count(t) * (t->t.dtype.bits / 8u);
            if (pass == 0) {
                size += bytes;
            } else {
                status = tensor_bits(t, *bits + at, why);
                at += bytes;
            }
        }
        *bits = pass == 0 ? malloc(size + 1) : *bits;
    }
    *n = size;
    return status;
}
