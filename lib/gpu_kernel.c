/* gpu_kernel.c: kernels of a plan: what they are compiled with, how they are launched.

   Who calls it: gpu_fwd.c, gpu_bwd.c. */
#include "gpu_kernel.h"

#include <stdlib.h>

int attn__compiled_size(int64_t d) {
    static const int sizes[] = {32, 64, 96, 128, 192, 256};
    int i = 0;
    while (i < 5 && sizes[i] < d) {
        i++;
    }
    return sizes[i];
}

/* -- Compiling --------------------------------------------------------------------------------- */

void attn__define_sizes(attn__job *job, const attn__problem *p, int d, int dv,
                        const attn__tile_size *tile) {
    const int type = p->q.type;
    attn__job_define(job, "ATTN_TYPE", type == ATTN_F16 ? 1 : type == ATTN_BF16 ? 2 : 3);
    attn__job_define(job, "ATTN_D", d);
    attn__job_define(job, "ATTN_DV", dv);
    attn__job_define(job, "ATTN_BM", tile->bm);
    attn__job_define(job, "ATTN_BN", tile->bn);
    attn__job_define(job, "ATTN_WARPS", tile->warps);
    attn__job_define(job, "ATTN_STAGES", tile->stages);
}

void attn__define_features(attn__job *job, const attn__problem *p, int words) {
    const int scales = p->q_scale.type || p->k_scale.type || p->v_scale.type;
    attn__job_define(job, "ATTN_HAS_SCORE", attn__has_score(p->variant));
    attn__job_define(job, "ATTN_HAS_MASK", attn__has_mask(p->variant));
    attn__job_define(job, "ATTN_HAS_DROPOUT", p->drop_threshold > 0);
    attn__job_define(job, "ATTN_HAS_BLOCKS", p->block_m > 0);
    attn__job_define(job, "ATTN_HAS_SCALES", scales);
    attn__job_define(job, "ATTN_WORDS", words ? words : 1);
}

int attn__kernel_get(const attn_plan *plan, const attn__job *job, attn__kernel *k,
                     const char *name, const char *shared) {
    const attn_device *const device = plan->device;
    int32_t bytes = 0;
    ATTN_TRY(attn__code_get(device, job, &k->code));
    attn__module *const module = attn__code_module(k->code);
    if (shared) {
        ATTN_TRY(device->driver->number(device->chip, module, shared, &bytes));
    }
    k->name = name;
    k->shared = bytes;
    k->spilled = 0;
    return device->driver->prepare
               ? device->driver->prepare(device->chip, module, name, bytes, &k->spilled)
               : ATTN_OK;
}

int attn__kernel_get_variant(const attn_plan *plan, attn__job *job, attn__kernel *k,
                             const char *name, const char *shared) {
    const attn__problem *const p = &plan->problem;
    char *source = NULL;
    if (attn__has_score(p->variant) || attn__has_mask(p->variant)) {
        ATTN_TRY(attn__variant_source(p->variant, plan->bound, p->direction == ATTN_BACKWARD,
                                      &((const attn__gpu_plan *)plan->state)->grads.text,
                                      &source));
        job->file[job->n_files++] = (attn__file){"variant.h", source};
    }
    const int status = attn__kernel_get(plan, job, k, name, shared);
    free(source);
    return status;
}

int attn__kernel_fit(attn_plan *plan, attn__job *job, attn__kernel *k, const attn__fit *fit) {
    int status = fit->compile(plan, job, k, fit->what);
    if (status == ATTN_DEVICE) {
        k->grid = fit->many;
        status = fit->compile(plan, job, k, fit->what);
    }
    ATTN_TRY(status);
    attn__kernel other = *k;
    while (k->spilled > fit->few && attn__tile_smaller(&other.grid.tile, fit->least)) {
        other.code = NULL;
        status = fit->compile(plan, job, &other, fit->what);
        const int better = status >= 0 && other.spilled < k->spilled;
        attn__code_put(better ? k->code : other.code);
        if (better) {
            *k = other;
        }
        if (status < 0) {
            return ATTN_OK;
        }
    }
    return ATTN_OK;
}

int attn__kernel_alone(const attn_plan *plan, attn__job *job, attn__kernel *k, const char *entry,
                       const char *name, int warps) {
    attn__job_begin(job, job->target, entry);
    attn__job_define(job, "ATTN_WARPS", warps);
    k->threads = warps * job->target->lanes;
    return attn__kernel_get(plan, job, k, name, NULL);
}

/* -- Launching --------------------------------------------------------------------------------- */

int attn__launch(const attn_plan *of, const attn__kernel *k, int64_t blocks, const void *params,
                 size_t bytes, void *stream) {
    const attn_device *const d = of->device;
    return d->driver->launch(d->chip, attn__code_module(k->code), k->name, blocks, k->threads,
                             k->shared, params, bytes, stream);
}

/* What work.h's quotient() takes for d. */
static u64 inverse(i64 d) {
    return d > 1 ? UINT64_MAX / (u64)d + 1 : 0;
}

/* Rounded up to the chiplets (work.h); a launch has at most 2^31 threads. */
int attn__launch_items(const attn_plan *of, const attn__kernel *k, attn_params *params,
                       size_t bytes, void *stream) {
    const i64 of_head = (i64)params->q_tiles * params->splits;
    params->xcd_items = attn__ceil_div(params->items, params->xcds);
    params->per_xcds = inverse(params->xcds);
    params->per_splits = inverse(params->splits);
    params->per_section = inverse((i64)params->near * params->q_tiles);
    params->per_heads = inverse(params->items / (params->B * of_head));
    params->per_group = inverse(params->group);
    const int64_t numbers = params->xcd_items * params->xcds;
    const int64_t most = ((int64_t)1 << 31) / k->threads;
    for (int64_t first = 0; first < numbers; first += most) {
        const int64_t rest = numbers - first;
        params->first = first;
        ATTN_TRY(attn__launch(of, k, rest < most ? rest : most, params, bytes, stream));
    }
    return ATTN_OK;
}

int attn__launch_rows(const attn_plan *of, const attn__kernel *k, int64_t rows,
                      const void *params, size_t bytes, void *stream) {
    const attn_device *const d = of->device;
    const int64_t most = 8 * (int64_t)d->driver->target(d->chip)->units;
    const int64_t blocks = attn__ceil_div(rows, ATTN__ALONE_WARPS);
    return rows ? attn__launch(of, k, blocks < most ? blocks : most, params, bytes, stream)
                : ATTN_OK;
}
