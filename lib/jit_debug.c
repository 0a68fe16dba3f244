/* jit_debug.c: what became of a plan, step by step, in the folder that ATTN_DEBUG names.

   Who calls it: jit.c, with every code object; status.c has the first step. The steps:

       plans.json            a line for each plan (attn_log, level 1)
       KEY-attn_fwd/         a kernel, by the first digits of its key in the cache
         variant.h           the text that was generated for the variant
         code                what the compiler made of it
         code.s              its assembly, by nvdisasm, llvm-objdump or objdump; PTX itself
         resources.txt       registers, spills, shared memory, by cuobjdump, llvm-readelf, size, or
                             ptxas, which takes PTX to be for sm_80
         job.txt             chip, compiler, defines; comes last, so all else is there where it is

   A tool is looked for on PATH; one that is missing is named in its file. Nothing here fails. */
#define _GNU_SOURCE
#include "jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096, DIGITS = 16, WORDS = 6 };

static void write_text(const char *folder, const char *name, const void *text, size_t n) {
    char path[PATH + 128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "we");
    if (file) {
        fwrite(text, 1, n, file);
        fclose(file);
    }
}

static void write_job(const char *folder, const attn__job *job, const char *by, const char *key) {
    char path[PATH + 128];
    snprintf(path, sizeof path, "%s/job.txt", folder);
    FILE *const file = fopen(path, "we");
    if (!file) {
        return;
    }
    fprintf(file, "%s for %s by %s\nkey %s\n", job->entry, job->target->name, by, key);
    for (int i = 0; i < job->n_defines; i++) {
        fprintf(file, "#define %s\n", job->define[i]);
    }
    fclose(file);
}

static int is_ours(const char *name) {
    for (int i = 0; i < attn__n_kernel_files; i++) {
        if (strcmp(attn__kernel_files[i].file.name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* What a tool says of the code, or what kept it from that. */
static void ask_tool(const char *folder, const char *name, const char *const tool[WORDS]) {
    char to[PATH + 128], code[PATH + 128];
    char *argv[WORDS + 2];
    int n = 0;
    snprintf(to, sizeof to, "%s/%s", folder, name);
    snprintf(code, sizeof code, "%s/code", folder);
    for (; tool[n]; n++) {
        argv[n] = (char *)tool[n];
    }
    argv[n++] = code;
    argv[n] = NULL;
    const int left = attn__spawn(argv, to);
    if (left < 0) {
        char text[128];
        const int length = snprintf(text, sizeof text, "%s %s\n", tool[0],
                                    left == ATTN__LATE ? "took too long" : "could not be started");
        write_text(folder, name, text, (size_t)length);
    }
}

void attn__debug_code(const attn__job *job, const char *by, const char *key, const void *code,
                      size_t bytes) {
    static const struct {
        const char *compiler, *assembly[WORDS], *resources[WORDS];
    } tools[] = {
        {"nvrtc", {"nvdisasm", "-c"}, {"cuobjdump", "--dump-resource-usage"}},
        {"hiprtc", {"llvm-objdump", "-d"}, {"llvm-readelf", "--notes"}},
        {"ptx", {"cat"}, {"ptxas", "-v", "-arch=sm_80", "-o", "/dev/null"}},
        {"cc", {"objdump", "-d"}, {"size"}},
    };
    const char *const base = getenv("ATTN_DEBUG");
    char folder[PATH], last[PATH + 128];
    if (!base || !*base) {
        return;
    }
    const int n = snprintf(folder, sizeof folder, "%s/%.*s-%.*s", base, DIGITS, key,
                           (int)strcspn(job->entry, "."), job->entry);
    snprintf(last, sizeof last, "%s/job.txt", folder);
    if (n >= (int)sizeof folder || access(last, F_OK) == 0) {
        return; /* it is there */
    }
    attn__make_folder(folder);
    for (int i = 0; i < job->n_files; i++) {
        if (!is_ours(job->file[i].name)) {
            write_text(folder, job->file[i].name, job->file[i].text, strlen(job->file[i].text));
        }
    }
    const int is_text = strcmp(job->target->compiler, "ptx") == 0; /* with a zero */
    write_text(folder, "code", code, is_text ? strnlen(code, bytes) : bytes);
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        if (strcmp(tools[i].compiler, job->target->compiler) == 0) {
            ask_tool(folder, "code.s", tools[i].assembly);
            ask_tool(folder, "resources.txt", tools[i].resources);
        }
    }
    write_job(folder, job, by, key);
}
