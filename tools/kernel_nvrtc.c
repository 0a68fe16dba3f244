/* kernel_nvrtc.c: one kernel by NVRTC, as plans have it compiled, with what ptxas says of it.

       kernel_nvrtc                         its version
       kernel_nvrtc OUT FILE OPTION...      FILE to machine code in OUT; prints NVRTC's words

   The library is found as lib/jit_nvrtc.c finds it where there is no driver. Fails where there is
   none, and where it refuses the text.

   Who calls it: tools/kernels.lua, which builds it with build/libattn.a. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_rtc.h"

static attn__rtc rtc = {.name = "NVRTC"};
static const attn__rtc_entry entries[] = {
    {"nvrtcVersion", &rtc.version},         {"nvrtcCreateProgram", &rtc.create},
    {"nvrtcCompileProgram", &rtc.compile},  {"nvrtcGetProgramLogSize", &rtc.log_size},
    {"nvrtcGetProgramLog", &rtc.log},       {"nvrtcGetCUBINSize", &rtc.code_size},
    {"nvrtcGetCUBIN", &rtc.code},           {NULL, NULL},
};

static int find(void) {
    static const char *const places[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                         "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"};
    int found = attn__rtc_named(&rtc, "ATTN_NVRTC", entries);
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !found; i++) {
        found = attn__rtc_load(&rtc, places[i], entries);
    }
    return found && !rtc.missing[0];
}

static char *read_text(const char *path) {
    FILE *const file = fopen(path, "r");
    char *const text = calloc(1, 1 << 20);
    const int good = file && text && fread(text, 1, (1 << 20) - 1, file) > 0;
    if (file) {
        fclose(file);
    }
    return good ? text : NULL;
}

static int write_code(void *program, const char *path) {
    size_t bytes = 0;
    FILE *const file = rtc.code_size(program, &bytes) == 0 ? fopen(path, "wb") : NULL;
    char *const code = malloc(bytes + 1);
    const int good =
        file && code && rtc.code(program, code) == 0 && fwrite(code, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && good ? 0 : 1;
}

int main(int argc, char **argv) {
    char *const text = argc > 2 ? read_text(argv[2]) : NULL;
    void *program;
    size_t n = 0;
    if (!find()) {
        fprintf(stderr, "kernel_nvrtc: %s\n", rtc.missing);
        return 2;
    }
    if (argc < 3) {
        printf("version %d.%d\n", rtc.major, rtc.minor);
        return 0;
    }
    if (!text || rtc.create(&program, text, argv[2], 0, NULL, NULL) != 0) {
        fprintf(stderr, "kernel_nvrtc: %s cannot be read\n", argv[2]);
        return 2;
    }
    const int error = rtc.compile(program, argc - 3, (const char *const *)argv + 3);
    char *const log = rtc.log_size(program, &n) == 0 ? calloc(1, n + 1) : NULL;
    if (log && rtc.log(program, log) == 0) {
        puts(log);
    }
    return error ? 1 : write_code(program, argv[1]);
}
