/* gpu.c: the engine of chips with kernels, emulated or not.

   Who calls it: plan.c, through the table attn__gpu.

       plan   refuse what kernels cannot do -> gpu_fwd.c or gpu_bwd.c
       run    the same

   A run allocates nothing, compiles nothing and waits for nothing, but for a parameter that is a
   tensor in device memory (bind.c) and ATTN_CHECK=1 (check.c). */
#include "gpu_kernel.h"

#include <stdlib.h>
#include <string.h>

static int refuse(const attn_plan *plan) {
    const attn__problem *const p = &plan->problem;
    const char *const device = plan->device->name;
    const int type = p->q.type;
    int32_t word[ATTN__MAX_SYMBOLS];
    if (type != ATTN_F32 && type != ATTN_F16 && type != ATTN_BF16) {
        return attn__fail(ATTN_UNSUPPORTED, "q",
                          "q is %s; device %s computes f32, f16 and bf16 in this version",
                          attn__type_name(type), device);
    }
    if (p->D > 256 || p->DV > 256) {
        return attn__fail(ATTN_UNSUPPORTED, p->D > 256 ? "q" : "v",
                          "%s has head dimension %lld; device %s allows 1 to 256",
                          p->D > 256 ? "q" : "v", (long long)(p->D > 256 ? p->D : p->DV), device);
    }
    const int words = attn__variant_words(&p->variant->graph, word);
    if (words > ATTN_WORDS) {
        return attn__fail(ATTN_UNSUPPORTED, "variant",
                          "the variant reads %d tensors and parameters, which take %d words; "
                          "device %s allows %d",
                          (int)p->variant->graph.n_symbols, words, device, ATTN_WORDS);
    }
    return ATTN_OK;
}

static int gpu_plan_new(attn_plan *to) {
    ATTN_TRY(refuse(to));
    attn__gpu_plan *const g = attn__alloc(sizeof *g, "a plan");
    if (!g) {
        return ATTN_MEMORY;
    }
    memset(g, 0, sizeof *g);
    to->state = g; /* from here on attn_plan_release frees it */
    attn__job *const job = attn__alloc(sizeof *job, "a plan");
    if (!job) {
        return ATTN_MEMORY;
    }
    job->target = to->device->driver->target(to->device->chip);
    const int status = to->problem.direction == ATTN_FORWARD ? attn__forward_plan(to, job)
                                                             : attn__backward_plan(to, job);
    free(job);
    return status;
}

static void gpu_release(attn_plan *to) {
    attn__gpu_plan *const g = to->state;
    for (int i = 0; i < ATTN__KERNELS; i++) {
        attn__code_put(g->kernel[i].code);
    }
    free(g);
}

static int gpu_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream) {
    return p->direction == ATTN_FORWARD ? attn__forward_run(of, p, workspace, stream)
                                        : attn__backward_run(of, p, workspace, stream);
}

const attn__engine attn__gpu = {"gpu", gpu_plan_new, gpu_run, gpu_release};
