/* jit.c: text to code objects: jobs, their keys, who compiles. A chip's code is made by its
   vendor's library, or by the program that ATTN_NVCC or ATTN_CLANG names.

   Who calls it: gpu_kernel.c (a job), gpu_module.c (its key, its code). */
#include "jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDENTITY = 4096 };

static const struct {
    const attn__compiler *compiler;
    const char *of;       /* attn__target.compiler */
    const char *variable; /* which must be set; NULL: none */
} compilers[] = {{&attn__cc, "cc", NULL},        {&attn__nvcc, "nvrtc", "ATTN_NVCC"},
                 {&attn__nvrtc, "nvrtc", NULL},  {&attn__nvcc_ptx, "ptx", "ATTN_NVCC"},
                 {&attn__ptx, "ptx", NULL},      {&attn__clang, "hiprtc", "ATTN_CLANG"},
                 {&attn__hiprtc, "hiprtc", NULL}};

static const attn__compiler *compiler_of(const attn__target *target) {
    for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++) {
        const char *const variable = compilers[i].variable;
        const char *const value = variable ? getenv(variable) : "";
        if (strcmp(compilers[i].of, target->compiler) == 0 && value && (!variable || *value)) {
            return compilers[i].compiler;
        }
    }
    return NULL;
}

/* -- Jobs -------------------------------------------------------------------------------------- */

static int is_for(const attn__target *target, const attn__kernel_file *f) {
    return f->who == FOR_ALL || f->who == (target->emulated ? FOR_EMULATED : FOR_CHIPS);
}

void attn__job_begin(attn__job *job, const attn__target *target, const char *entry) {
    job->target = target;
    job->entry = entry;
    job->n_files = job->n_defines = 0;
    for (int i = 0; i < attn__n_kernel_files; i++) {
        if (is_for(target, &attn__kernel_files[i])) {
            job->file[job->n_files++] = attn__kernel_files[i].file;
        }
    }
}

void attn__job_define(attn__job *job, const char *name, int value) {
    snprintf(job->define[job->n_defines++], ATTN__DEFINE, "%s=%d", name, value);
}

/* -- Keys -------------------------------------------------------------------------------------- */

/* With its closing zero, so that no two lists of strings are the same bytes. */
static void add(attn__sha256 *sum, const char *text) {
    attn__sha256_add(sum, text, strlen(text) + 1);
}

/* The files that the job began with, if it still has them; returns how many they are. */
static int add_shared(attn__sha256 *sum, const attn__job *job) {
    int n = 0;
    for (int i = 0; i < attn__n_kernel_files; i++) {
        const attn__kernel_file *const f = &attn__kernel_files[i];
        if (is_for(job->target, f)) {
            if (n == job->n_files || job->file[n].text != f->file.text) {
                return 0;
            }
            n++;
        }
    }
    add(sum, "all kernel files");
    add(sum, attn__kernel_sums[job->target->emulated != 0]);
    return n;
}

void attn__job_key(const attn__job *job, char key[ATTN__KEY]) {
    attn__sha256 sum;
    attn__sha256_begin(&sum);
    add(&sum, attn_version());
    add(&sum, job->target->name);
    add(&sum, job->target->emulated ? "emulated" : "chip");
    add(&sum, job->entry);
    for (int i = 0; i < job->n_defines; i++) {
        add(&sum, job->define[i]);
    }
    for (int i = add_shared(&sum, job); i < job->n_files; i++) {
        add(&sum, job->file[i].name);
        add(&sum, job->file[i].text);
    }
    attn__sha256_hex(&sum, key);
}

int attn__jit_key(const attn__job *job, char key[ATTN__KEY]) {
    const attn__compiler *const compiler = compiler_of(job->target);
    char identity[IDENTITY];
    attn__sha256 sum;
    attn__job_key(job, key);
    if (attn__bundle_find(key, NULL, NULL)) {
        return ATTN_OK;
    }
    if (!compiler) {
        return attn__fail(ATTN_UNSUPPORTED, "device", "%s needs %s, which this build does not know",
                          job->target->name, job->target->compiler);
    }
    const int status = compiler->identity(job->target, identity, sizeof identity);
    if (status < 0) {
        return attn__bundle_blame(status, job->entry);
    }
    attn__sha256_begin(&sum);
    add(&sum, key);
    add(&sum, compiler->name);
    add(&sum, identity);
    attn__sha256_hex(&sum, key);
    return ATTN_OK;
}

/* -- Code -------------------------------------------------------------------------------------- */

int attn__jit(const attn__job *job, const char *key, void **code, size_t *bytes) {
    const char *by = "a bundle";
    *code = NULL;
    if (!attn__bundle_find(key, code, bytes)) {
        const attn__compiler *const compiler = compiler_of(job->target);
        by = compiler->name;
        if (!attn__cache_read(key, code, bytes)) {
            ATTN_TRY(compiler->compile(job, code, bytes));
            attn__cache_write(key, *code, *bytes);
        }
    }
    attn__debug_code(job, by, key, *code, *bytes);
    return ATTN_OK;
}
