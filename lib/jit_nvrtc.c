/* jit_nvrtc.c: kernel text -> machine code for NVIDIA's chips, by NVRTC, found at run time.

   Who calls it: jit.c, through the tables attn__nvrtc and attn__ptx. No GPU and no header of the
   vendor is needed. The library is what the environment variable ATTN_NVRTC names, or else the
   first of these that is here, those of the driver's CUDA or older before newer ones, whose code
   it would not load:

       libnvrtc.so.13  libnvrtc.so.12  libnvrtc.so.11.2  libnvrtc.so;  /usr/local/cuda/lib64, too */
#include "jit_rtc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Two views of the library, for a chip's code and for PTX. */
static attn__rtc rtc = {.name = "NVRTC"}, ptx = {.name = "NVRTC"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
#define ENTRIES(view, kind)                                                                        \
    {                                                                                              \
        {"nvrtcVersion", &view.version}, {"nvrtcCreateProgram", &view.create},                     \
            {"nvrtcDestroyProgram", &view.destroy}, {"nvrtcCompileProgram", &view.compile},        \
            {"nvrtcGetProgramLogSize", &view.log_size}, {"nvrtcGetProgramLog", &view.log},         \
            {"nvrtcGet" kind "Size", &view.code_size}, {"nvrtcGet" kind, &view.code},              \
            {"nvrtcGetErrorString", &view.error}                                                   \
    }
static const attn__rtc_entry entries[ATTN__RTC_ENTRIES] = ENTRIES(rtc, "CUBIN");
static const attn__rtc_entry entries_ptx[ATTN__RTC_ENTRIES] = ENTRIES(ptx, "PTX");

/* Products and sums stay apart; division, root and subnormals are exact. */
static const char *const options[] = {"--std=c++17", "-default-device", "-fmad=false",
                                      "-ftz=false",  "-prec-div=true",  NULL};

static int load(const char *path) {
    return attn__rtc_load(&rtc, path, entries) && attn__rtc_load(&ptx, path, entries_ptx);
}

static void find(void) {
    static const struct {
        const char *path;
        int major; /* 0: any */
    } places[] = {{"libnvrtc.so.13", 13},   {"/usr/local/cuda/lib64/libnvrtc.so.13", 13},
                  {"libnvrtc.so.12", 12},   {"/usr/local/cuda/lib64/libnvrtc.so.12", 12},
                  {"libnvrtc.so.11.2", 11}, {"libnvrtc.so", 0}};
    const int n = (int)(sizeof places / sizeof places[0]);
    const char *const named = getenv("ATTN_NVRTC");
    const int driver = attn__cuda_version() / 1000;
    if (named && *named) {
        load(named);
        return;
    }
    for (int newer = 0; newer < 2; newer++) {
        for (int i = 0; i < n; i++) {
            if ((driver != 0 && places[i].major > driver) == newer && load(places[i].path)) {
                return;
            }
        }
    }
    snprintf(rtc.missing, sizeof rtc.missing,
             "no libnvrtc.so of CUDA 11.2 to 13 was found; ATTN_NVRTC may name one");
}

static int nvrtc_identity(const attn__target *target, char *text, size_t capacity) {
    pthread_once(&once, find);
    return attn__rtc_identity(&rtc, target, options, text, capacity);
}

static int compile(const attn__rtc *view, const attn__job *job, void **code, size_t *bytes) {
    char arch[48];
    pthread_once(&once, find);
    snprintf(arch, sizeof arch, "--gpu-architecture=%.20s", job->target->name);
    return attn__rtc_compile(view, job, arch, options, code, bytes);
}
static int nvrtc_compile(const attn__job *job, void **code, size_t *bytes) {
    return compile(&rtc, job, code, bytes);
}
static int ptx_compile(const attn__job *job, void **code, size_t *bytes) {
    return compile(&ptx, job, code, bytes);
}

const attn__compiler attn__nvrtc = {"nvrtc", nvrtc_identity, nvrtc_compile};
const attn__compiler attn__ptx = {"ptx", nvrtc_identity, ptx_compile};
