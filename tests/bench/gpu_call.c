/* gpu_call.c: what a call costs the host on an NVIDIA GPU: compiling, loading, planning, launching.

       gpu_call [DEVICE]      cuda:0

   Who calls it: tests/device_run.sh. A line for each figure, with what is allowed; the exit status
   is 1 if one is above it.

       cold     a plan whose kernel is not in the cache              NVRTC compiles
       warm     the same in a process of its own: from the cache     the driver loads
       known    other sizes, lengths, scale and value of a parameter nothing is compiled or loaded
       launch   attn_run, less cuLaunchKernel of an empty kernel with as many bytes of parameters */
#define _GNU_SOURCE
#include <attn.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRY(x)                                                                                     \
    do {                                                                                           \
        if ((x) < 0) {                                                                             \
            fprintf(stderr, "%s: %s\n", #x, attn_error());                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CUDA(x)                                                                                    \
    do {                                                                                           \
        const int code = (x);                                                                      \
        if (code != 0) {                                                                           \
            fprintf(stderr, "%s answers %d\n", #x, code);                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { BATCH = 200, BATCHES = 25, PARAMETERS = 896 };

static int failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show(const char *what, double value, const char *unit, double allowed) {
    const int over = value > allowed;
    failed |= over;
    printf("%-46s %8.3f %s of %g%s\n", what, value, unit, allowed, over ? "  TOO MUCH" : "");
    fflush(stdout);
}

/* -- Plans ------------------------------------------------------------------------------------- */

static attn_device *device;

/* Of B entries, H heads and N rows, with `scale`, and a parameter's value. */
static attn_plan *plan(int64_t B, int64_t H, int64_t N, double scale, double cap, attn_call *call,
                       void **memory) {
    static attn_tensor x[4];
    static int64_t shape[4];
    static attn_capture capture = {.name = "cap"};
    attn_variant *variant;
    attn_plan *made;
    const int64_t sizes[] = {B, H, N, 64};
    memcpy(shape, sizes, sizeof shape);
    for (int i = 0; i < 4; i++) {
        if (!memory[i]) {
            TRY(attn_buffer_new(device, 1 << 22, &memory[i]));
        }
        x[i] = (attn_tensor){.data = memory[i], .ndim = 4, .shape = shape, .dtype = {4, 16, 1}};
    }
    capture.number = cap;
    *call = (attn_call){.size = sizeof *call, .flags = ATTN_SCALE_GIVEN, .scale = scale,
                        .q = &x[0], .k = &x[1], .v = &x[2], .o = &x[3], .captures = &capture,
                        .n_captures = 1};
    TRY(attn_variant_parse("k <= q ? s * cap : -inf", &variant));
    TRY(attn_plan_new(device, ATTN_FORWARD, call, variant, &made));
    attn_variant_release(variant);
    return made;
}

/* Seconds of a plan, and of planning it again with other numbers. */
static void time_plans(double *first, double *again) {
    void *memory[4] = {0};
    attn_call call;
    double begin = now();
    attn_plan *const one = plan(2, 4, 1000, 0.125, 1.5, &call, memory);
    *first = now() - begin;
    begin = now();
    attn_plan *const other = plan(3, 2, 600, 0.25, 0.5, &call, memory);
    *again = now() - begin;
    attn_plan_release(one);
    attn_plan_release(other);
    for (int i = 0; i < 4; i++) {
        attn_buffer_release(device, memory[i]);
    }
}

/* In a process of its own, which has made its context and has used the driver. */
static void in_process(const char *name, const char *self, const char *which) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, name, which, (char *)NULL);
        _exit(127);
    }
    int status = 1;
    waitpid(child, &status, 0);
    failed |= status != 0;
}

static void compiling(const char *which) {
    double first, again;
    time_plans(&first, &again);
    if (strcmp(which, "cold") == 0) {
        show("cold: a plan that compiles its kernel", first, "s", 3);
        show("known: other sizes, scale and parameter", again * 1e3, "ms", 1);
    } else {
        show("warm: a plan from the cache", first * 1e3, "ms", 5);
        attn_device_release(device); /* its modules go */
        TRY(attn_device_open("cuda:0", NULL, &device));
        time_plans(&first, &again);
        show("warm: the same, once more", first * 1e3, "ms", 5);
    }
}

/* -- Launches ---------------------------------------------------------------------------------- */

static struct driver {
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*stream)(void **, unsigned);
    int (*wait)(void *);
} cuda;

static void load_driver(void) {
    const char *const named = getenv("ATTN_CUDA");
    void *const library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW);
    const struct {
        const char *name;
        void *at;
    } entry[] = {{"cuDevicePrimaryCtxRetain", &cuda.retain},
                 {"cuCtxPushCurrent_v2", &cuda.push},
                 {"cuModuleLoadData", &cuda.load},
                 {"cuModuleGetFunction", &cuda.function},
                 {"cuLaunchKernel", &cuda.launch},
                 {"cuStreamCreate", &cuda.stream},
                 {"cuStreamSynchronize", &cuda.wait}};
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *const f = library ? dlsym(library, entry[i].name) : NULL;
        CUDA(f ? 0 : 1);
        memcpy(entry[i].at, &f, sizeof f);
    }
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of the batches' microseconds for a launch: of attn, or of the empty kernel. */
static double median_of(const attn_plan *p, const attn_call *call, void *nothing, void *stream) {
    static char parameters[PARAMETERS];
    void *values[] = {parameters};
    double us[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        const double begin = now();
        for (int i = 0; i < BATCH; i++) {
            if (p) {
                TRY(attn_run(p, call, NULL, stream));
            } else {
                CUDA(cuda.launch(nothing, 1, 1, 1, 128, 1, 1, 0, stream, values, NULL));
            }
        }
        us[b] = (now() - begin) / BATCH * 1e6;
        CUDA(cuda.wait(stream));
    }
    qsort(us, BATCHES, sizeof *us, ascending);
    return us[BATCHES / 2];
}

static void launching(void) {
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry nothing(.param .align 8 .b8 p[896]) { ret; }\n";
    void *memory[4] = {0}, *context, *module, *nothing, *stream;
    attn_call call;
    load_driver();
    CUDA(cuda.retain(&context, 0));
    CUDA(cuda.push(context));
    CUDA(cuda.load(&module, ptx));
    CUDA(cuda.function(&nothing, module, "nothing"));
    CUDA(cuda.stream(&stream, 1));
    attn_plan *const small = plan(1, 1, 16, 0.125, 1.5, &call, memory);
    median_of(small, &call, nothing, stream); /* warm */
    const double empty = median_of(NULL, NULL, nothing, stream);
    const double attn = median_of(small, &call, nothing, stream);
    const double empty_again = median_of(NULL, NULL, nothing, stream);
    const double driver = empty < empty_again ? empty : empty_again;
    show("launch: the driver's of an empty kernel", driver, "us", 1e9);
    show("launch: attn_run", attn, "us", 1e9);
    show("launch: attn_run beyond the driver's", attn - driver, "us", 5);
}

int main(int n, char **argument) {
    const char *const name = n > 1 ? argument[1] : "cuda:0";
    if (n < 3) {
        char folder[] = "/tmp/attn_call_XXXXXX";
        if (!mkdtemp(folder)) {
            return 1;
        }
        setenv("ATTN_CACHE", folder, 1);
        in_process(name, argument[0], "cold");
        in_process(name, argument[0], "warm");
        in_process(name, argument[0], "launch");
        return failed;
    }
    TRY(attn_device_open(name, NULL, &device));
    if (strcmp(argument[2], "launch") == 0) {
        launching();
    } else {
        compiling(argument[2]);
    }
    return failed;
}
