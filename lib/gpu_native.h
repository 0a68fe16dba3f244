/* gpu_native.h: a chip behind its maker's driver library: what CUDA's and HIP's have in common.

       gpu_cuda.c gpu_hip.c    find the library, describe devices, fill an attn__vendor
            |
            v
       gpu_native.c            devices, memory, streams       through the vendor's calls
       gpu_native_event.c      marks in streams
       gpu_native_code.c       modules, kernels, launches

   Every call that touches a device looks like this, so that what the caller has current stays so:

       push the chip's context -> the vendor's calls -> pop

   The chip's context is the one that was current when the device was opened, if it is of that
   device; then it is the caller's and must outlive the chip. Else it is the device's primary one,
   which the chip retains. */
#ifndef ATTN_GPU_NATIVE_H
#define ATTN_GPU_NATIVE_H

#include "gpu.h"

/* X(name, arguments): calls that answer 0 or an error's number. Addresses of device memory are
   numbers. */
#define ATTN__CALLS(X)                                                                             \
    X(retain, (void **, int *, int))                                                               \
    X(release, (int))                                                                              \
    X(push, (void *))                                                                              \
    X(pop, (void **))                                                                              \
    X(wait, (void))                                                                                \
    X(alloc, (uint64_t *, size_t))                                                                 \
    X(free, (uint64_t))                                                                            \
    X(to_device, (uint64_t, const void *, size_t, void *))                                         \
    X(to_host, (void *, uint64_t, size_t, void *))                                                 \
    X(within, (uint64_t, uint64_t, size_t, void *))                                                \
    X(copy_rows, (const attn__rows *, const attn__rows *, size_t, size_t, void *))                 \
    X(stream_new, (void **, unsigned))                                                             \
    X(stream_free, (void *))                                                                       \
    X(stream_sync, (void *))                                                                       \
    X(event_new, (void **, unsigned))                                                              \
    X(event_free, (void *))                                                                        \
    X(event_record, (void *, void *))                                                              \
    X(event_query, (void *))                                                                       \
    X(event_await, (void *, void *, unsigned))                                                     \
    X(load, (void **, const void *))                                                               \
    X(unload, (void *))                                                                            \
    X(function, (void **, void *, const char *))                                                   \
    X(global, (uint64_t *, size_t *, void *, const char *))                                        \
    X(allow_shared, (void *, int))                                                                 \
    X(attribute, (int *, int, void *))                                                             \
    X(launch, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
               void *, void **, void **))

typedef struct attn__vendor {
#define ATTN__CALL(name, arguments) int(*name) arguments;
    ATTN__CALLS(ATTN__CALL)
#undef ATTN__CALL
    const char *(*error_name)(int code);
    const char *(*error_text)(int code);
    /* Fills info, and for a chip with kernels its target, the one of that name or with "" the best;
       the driver's number of the device. */
    int (*describe)(int index, const char *kernels, attn_device_info *info, attn__target *target);
    const char *name; /* "cuda" */
    int kind;         /* DLPack's */
    /* For sentences: who makes it, its oldest release, variables that name its library and that
       hide devices, its device file, what lets a user open that. */
    const char *maker, *oldest, *variable, *hides, *node, *permit;
    int out_of_memory; /* its error's number */
    int devices;
    char missing[192]; /* "" where devices can be asked for */
} attn__vendor;

/* A library's entry and where its address goes; with a ? before it an older one may lack it. */
typedef struct attn__entry {
    const char *symbol;
    void *at;
} attn__entry;
/* Opens it and fills n entries, or vendor->missing says why not. */
enum attn__found { ATTN__ABSENT, ATTN__TOO_OLD, ATTN__FOUND };
enum attn__found attn__native_entries(attn__vendor *vendor, const char *path,
                                      const attn__entry *entry, size_t n);
/* vendor->missing, for the driver's answer `code` to the first questions, or 0: no device. */
void attn__native_unusable(attn__vendor *vendor, int code);

struct attn__chip {
    const attn__vendor *vendor;
    int index, device;
    char kernels[16]; /* as the device's name has them: "", "compute_80" */
    void *context;
    int adopted; /* it is the caller's */
    attn__target target; /* of this chip: its own units and shared memory */
};

/* A status with its sentence for the vendor's answer `code` to `what`. */
int attn__native_fail(const attn__vendor *vendor, int code, const char *what);
/* Makes the chip's context current; leave makes the one before it so again. `what` was tried in
   between and answered `code`. */
int attn__native_enter(const attn__chip *chip);
int attn__native_leave(const attn__chip *chip, int code, const char *what);

/* -- Members of attn__driver ------------------------------------------------------------------- */
int attn__native_list(const attn__vendor *vendor, attn_device_info *list, int cap);
int attn__native_open(const attn__vendor *vendor, const char *name, attn__chip **chip);
void attn__native_close(attn__chip *chip);
const attn__target *attn__native_target(const attn__chip *chip);
int attn__native_query(attn__chip *chip, attn_device_info *info);
int attn__native_alloc(attn__chip *chip, uint64_t bytes, void **pointer);
void attn__native_free(attn__chip *chip, void *pointer);
int attn__native_to_device(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                           void *stream);
int attn__native_to_host(attn__chip *chip, void *to, const void *from, uint64_t bytes,
                         void *stream);
int attn__native_copy_rows(attn__chip *chip, const attn__rows *to, const attn__rows *from,
                           uint64_t bytes, uint64_t rows, void *stream);
int attn__native_wait(attn__chip *chip);
int attn__native_stream_new(attn__chip *chip, void **stream);
void attn__native_stream_free(attn__chip *chip, void *stream);
int attn__native_stream_sync(attn__chip *chip, void *stream);
int attn__native_event_new(attn__chip *chip, void **event);
void attn__native_event_free(attn__chip *chip, void *event);
int attn__native_event_record(attn__chip *chip, void *event, void *stream);
int attn__native_event_done(attn__chip *chip, void *event, int *done);
int attn__native_event_await(attn__chip *chip, void *event, void *stream);
int attn__native_load(attn__chip *chip, const void *code, size_t bytes, attn__module **module);
void attn__native_unload(attn__chip *chip, attn__module *module);
int attn__native_number(attn__chip *chip, attn__module *module, const char *name, int32_t *value);
int attn__native_prepare(attn__chip *chip, attn__module *module, const char *kernel, int shared,
                         int *spilled);
int attn__native_launch(attn__chip *chip, attn__module *module, const char *kernel,
                        int64_t blocks, int threads, int shared, const void *params, size_t bytes,
                        void *stream);

/* All members but name, kind, list and open. */
#define ATTN__NATIVE_MEMBERS                                                                       \
    .close = attn__native_close, .target = attn__native_target, .query = attn__native_query,       \
    .alloc = attn__native_alloc, .free = attn__native_free, .to_device = attn__native_to_device,   \
    .to_host = attn__native_to_host, .copy_rows = attn__native_copy_rows,                          \
    .wait = attn__native_wait, .stream_new = attn__native_stream_new,                              \
    .stream_free = attn__native_stream_free, .stream_sync = attn__native_stream_sync,              \
    .event_new = attn__native_event_new, .event_free = attn__native_event_free,                    \
    .event_record = attn__native_event_record, .event_done = attn__native_event_done,              \
    .event_await = attn__native_event_await,                                                       \
    .load = attn__native_load, .unload = attn__native_unload, .number = attn__native_number,       \
    .prepare = attn__native_prepare, .launch = attn__native_launch

#endif
