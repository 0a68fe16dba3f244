/* fake_gpu.h: the chip behind a look-alike of a GPU's driver, for tests on machines without a GPU.

   Who includes it: fake_gpu_code.h, which has modules, launches and compilers, for fake_cuda.c and
   fake_hip.c, which give it one maker's entry points. What it is strict about:

       memory     a device address cannot be read or written by the host: it is a page of `space`,
                  closed; `shadow` is a second mapping of the same memory, which copies use. Copies
                  must lie within one live block
       contexts   what needs the device must find it current; a stream, a mark, code are of the
                  context in which they were made, and refused in another one
       order      kernels, copies and fills within the device happen as late as is allowed: when
                  a stream or the device is waited for, or the host takes part in a copy. Streams
                  take turns then, the youngest first. Stream NULL and every other one wait for
                  each other, but not those made with the flag 1
       streams    a destroyed one is refused, its work still comes, late; the next new stream gets
                  its handle
       marks      one is that of the last record
       graphs     while a stream is captured what it is given is noted, not done; all that would
                  wait, take memory or load code, and all on stream NULL, is refused
       launches   one parameter, by address, copied by the call; a known function; as much shared
                  memory as it was allowed

   Without an emulator (fake_emulate) kernels have fixed names and do nothing; with one, compilers
   make emulated kernels, and a launch runs them while `space` is open. Every call is written to a
   log. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
/* Both makers' numbers. */
enum { INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, NO_CONTEXT = 201, NOT_FOUND = 500,
       NOT_READY = 600, ILLEGAL_ADDRESS = 700,
       BAD_HANDLE = 400, CAPTURED = 900 };
enum { MOST_BLOCKS = 4096, LOG = 1 << 16, SPACE_BITS = 36, PARAMS = 4096, MOST_QUEUED = 1024 };
enum { SOME_PARAMS = 1024 }; /* copied of a parameter whose size is not known: cuda_test.cc's */
enum { MOST_FUNCTIONS = 256, MOST_MODULES = 256, FUNCTION = 0x4000, MODULE = 0x3000,
       EVENT = 0x6000, MOST_EVENTS = 4096, STREAM = 0x2000, MOST_STREAMS = 256 };

/* Does the calling thread have the device current? Of the file that includes this one. */
static int current(void);
static int current_device(void);
static void *current_context(void);

/* -- What a test reads and sets ---------------------------------------------------------------- */

typedef struct fake_launch {
    char kernel[48];
    unsigned grid, block, shared;
    void *stream;
    unsigned char params[PARAMS];
    int count;
} fake_launch;

/* A model of the chip; `device` is the driver's number of it. Answers 0, or an error's number. */
typedef struct fake_emulator {
    size_t params; /* bytes of the kernels' parameter */
    int (*compile)(const char *entry, int files, const char *const *names, const char *const *texts,
                   int options, const char *const *option, void **code, size_t *bytes);
    void *(*load)(int device, const void *code);
    void (*unload)(int device, void *module);
    int (*number)(int device, void *module, const char *name, int32_t *value);
    int (*launch)(int device, void *module, const char *kernel, unsigned blocks, unsigned threads,
                  unsigned shared, const void *params);
    int (*map)(int is_f16, const void *at, const uint64_t *n, const uint64_t *st,
               const uint32_t *box, void *map); /* of NVIDIA's chips */
} fake_emulator;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[LOG];
static size_t log_at;
static fake_launch last;
static int spills[4]; /* what the next kernels that are asked about spill */
static char fail_name[64];
static int fail_code, broken;
static const fake_emulator *emulator;
static size_t room = (size_t)1 << SPACE_BITS; /* bytes that the device has in all */

API const char *fake_log(void) {
    return log_text;
}
API void fake_clear(void) {
    log_text[log_at = 0] = 0;
}
API const fake_launch *fake_last(void) {
    return &last;
}
/* The next call of that name answers `code`. */
API void fake_fail(const char *name, int code) {
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_code = code;
}
/* Every call that needs the device answers `code` from now on, as after an illegal access or when
   the device is lost; 0: it works again. */
API void fake_break(int code) {
    broken = code;
}
/* What the next kernel spills, the one after it, and so on; the rest nothing. */
API void fake_spills(int a, int b, int c) {
    memcpy(spills, (int[]){a, b, c, 0}, sizeof spills);
}
API void fake_emulate(const fake_emulator *e) {
    emulator = e;
}

/* Writes a line and returns what the call is to answer at once, or 0. */
static int note(const char *name, const char *format, ...) {
    va_list values;
    int code = 0;
    pthread_mutex_lock(&log_lock);
    if (log_at > LOG - 512) {
        log_at = 0;
    }
    log_at += (size_t)sprintf(log_text + log_at, "%s", name);
    va_start(values, format);
    log_at += (size_t)vsnprintf(log_text + log_at, 300, format, values);
    va_end(values);
    log_at += (size_t)sprintf(log_text + log_at, "\n");
    if (strcmp(fail_name, name) == 0) {
        fail_name[0] = 0;
        code = fail_code;
    }
    pthread_mutex_unlock(&log_lock);
    return code;
}

/* The same of a call that needs the device: `code` is note's. */
static int needs_device(int code) {
    return code ? code : !current() ? NO_CONTEXT : broken;
}
/* And of one that no stream may be captured at. */
static uint64_t captured; /* the stream's number; 0: none */
static int needs_no_capture(int code) {
    code = needs_device(code);
    return code ? code : captured ? CAPTURED : 0;
}

static int number(const char *variable, int otherwise) {
    const char *const text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static const char *error_word(int code) {
    return code == NO_MEMORY         ? "OUT_OF_MEMORY"
           : code == NO_CONTEXT      ? "INVALID_CONTEXT"
           : code == NO_DEVICE       ? "NO_DEVICE"
           : code == ILLEGAL_ADDRESS ? "ILLEGAL_ADDRESS"
           : code == NOT_FOUND       ? "NOT_FOUND"
           : code == BAD_HANDLE      ? "INVALID_HANDLE"
                                     : "INVALID_VALUE";
}

/* -- Memory ------------------------------------------------------------------------------------ */

static pthread_mutex_t chip_lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct {
    uint64_t at;
    size_t bytes;
    int live; /* 2: a module's */
} blocks[MOST_BLOCKS];
static int n_blocks;
static char *space, *shadow; /* device addresses; what they stand for */
static size_t used;          /* addresses are given once */
static size_t taken;         /* bytes of live blocks */

static void begin(void) {
    const size_t all = (size_t)1 << SPACE_BITS;
    const int file = memfd_create("fake_gpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)all) != 0) {
        abort();
    }
    space = mmap(NULL, all, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    shadow = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
}

/* The shadow of a range within one live block, or NULL. */
static char *within(uint64_t at, size_t bytes) {
    for (int i = n_blocks; i-- > 0;) {
        const uint64_t from = blocks[i].at;
        if (blocks[i].live && at >= from && at + bytes <= from + blocks[i].bytes) {
            return shadow + (at - (uint64_t)(uintptr_t)space);
        }
    }
    return NULL;
}

API int fake_live(void) {
    int live = 0;
    for (int i = 0; i < n_blocks; i++) {
        live += blocks[i].live == 1;
    }
    return live;
}
/* The device has so many bytes more than it has given; 0: as many as addresses allow. */
API void fake_room(size_t bytes) {
    room = bytes ? taken + bytes : (size_t)1 << SPACE_BITS;
}

static int take(uint64_t *at, size_t bytes, int whose) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    if (n_blocks == MOST_BLOCKS || bytes > room || taken > room - bytes ||
        used > ((size_t)1 << SPACE_BITS) - bytes - 512) {
        return NO_MEMORY;
    }
    *at = (uint64_t)(uintptr_t)space + used;
    memset(shadow + used, 0x5a, bytes < 4096 ? bytes : 4096);
    blocks[n_blocks].at = *at;
    blocks[n_blocks].bytes = bytes;
    blocks[n_blocks++].live = whose;
    used += (bytes + 511) / 256 * 256; /* neighbours never touch */
    taken += bytes;
    return 0;
}

/* -- Work, in the order of streams ------------------------------------------------------------- */

typedef struct function {
    int device;
    void *owner;  /* its context */
    void *module; /* the emulator's */
    char name[48];
    int allowed;
} function;
static function functions[MOST_FUNCTIONS];
static int n_functions;

typedef struct work {
    uint64_t stream;          /* its own number: 0 for NULL, never used again */
    const function *function; /* NULL: a copy, or without `from` a fill */
    uint64_t mark, awaits;    /* or not 0: a record's own number; that of one to come first */
    unsigned blocks, threads, shared;
    _Alignas(64) unsigned char params[PARAMS];
    uint64_t to, from;
    uint32_t value; /* of each word, of a fill */
    size_t bytes;
} work;
static work queue[MOST_QUEUED];
static int n_queued;
static uint64_t last_number; /* of streams and marks */
static const uint64_t NUMBERED = (uint64_t)1 << 40, LOOSE = (uint64_t)1 << 41; /* of a stream */

static int run_copy(const work *w) {
    char *const to = within(w->to, w->bytes), *const from = within(w->from, w->bytes);
    if (to && from) {
        memcpy(to, from, w->bytes);
    }
    return to && from ? 0 : ILLEGAL_ADDRESS;
}

static int run_fill(const work *w) {
    char *const to = within(w->to, w->bytes);
    for (size_t i = 0; to && i < w->bytes; i += 4) {
        memcpy(to + i, &w->value, 4);
    }
    return to ? 0 : ILLEGAL_ADDRESS;
}

static int run_one(const work *w) {
    if (w->mark || w->awaits) {
        return 0;
    } else if (!w->function) {
        return w->from ? run_copy(w) : run_fill(w);
    }
    if (!emulator) {
        return 0;
    }
    mprotect(space, used, PROT_READ | PROT_WRITE);
    const int code = emulator->launch(w->function->device, w->function->module, w->function->name,
                                      w->blocks, w->threads, w->shared, w->params);
    mprotect(space, used, PROT_NONE);
    return code;
}

/* The place of a record that was not reached, or -1. */
static int place_of(uint64_t mark) {
    for (int i = 0; i < n_queued && mark; i++) {
        if (queue[i].mark == mark && queue[i].bytes != SIZE_MAX) {
            return i;
        }
    }
    return -1;
}

/* Runs a stream's work up to the one at `i`, and before it what it waits for. */
static void run_stream(int i) {
    for (int j = 0; j <= i; j++) {
        if (queue[j].stream == queue[i].stream && queue[j].bytes != SIZE_MAX) {
            const int before = queue[j].awaits ? place_of(queue[j].awaits) : -1;
            if (before >= 0) {
                run_stream(before);
            }
            const int code = run_one(&queue[j]);
            broken = broken ? broken : code;
            queue[j].bytes = SIZE_MAX; /* done */
        }
    }
}

/* Runs what is queued in [first, end) on `stream`, or on all that wait for NULL, or really on all,
   the youngest one first. */
enum whose { ONE, WITH_NULL, ALL };
static void run_some(int first, int end, enum whose whose, uint64_t stream) {
    for (int i = end; i-- > first;) {
        const uint64_t its = queue[i].stream;
        if (whose == ALL || (whose == ONE ? its == stream : !(its & LOOSE))) {
            run_stream(i);
        }
    }
}

/* All that NULL's work up to the one at `end` waits for, in parts that NULL's work divides. */
static void run_until(int end) {
    for (int from = 0, to; from < end; from = to) {
        for (to = from; to < end && queue[to].stream;) {
            to++;
        }
        to += to == from;
        run_some(from, to, WITH_NULL, 0);
    }
}

static void forget_done(void) {
    int to = 0;
    for (int i = 0; i < n_queued; i++) {
        if (queue[i].bytes != SIZE_MAX) {
            queue[to++] = queue[i];
        }
    }
    n_queued = to;
}

/* What must have happened when `stream` has come to its end. */
static void finish(uint64_t stream) {
    int end = n_queued;
    while (end > 0 && stream && queue[end - 1].stream != stream) {
        end--;
    }
    int null = stream & LOOSE ? 0 : end;
    while (null > 0 && stream && queue[null - 1].stream) {
        null--;
    }
    run_until(null);
    run_some(null, end, ONE, stream);
    forget_done();
}

/* The same of the device. */
static void finish_all(void) {
    run_until(n_queued);
    run_some(0, n_queued, ALL, 0);
    forget_done();
}

static work graph[MOST_QUEUED]; /* what the captured stream was given */
static int n_graph;

static int enqueue(const work *w) {
    if (captured && w->stream == captured) {
        graph[n_graph++] = *w;
        return n_graph == MOST_QUEUED;
    }
    if (n_queued == MOST_QUEUED) {
        finish_all();
    }
    queue[n_queued++] = *w;
    return 0;
}

/* -- Streams ----------------------------------------------------------------------------------- */

static uint64_t streams[MOST_STREAMS]; /* numbers of those that live */
static void *stream_owners[MOST_STREAMS];

/* The number of a handle, unless its stream is destroyed or another context's. Handles of a test's
   own are their numbers. */
static int number_of(const void *handle, uint64_t *stream) {
    const uintptr_t which = (uintptr_t)handle - STREAM;
    *stream = which < MOST_STREAMS ? streams[which] : (uintptr_t)handle;
    const int is_bad = which < MOST_STREAMS && stream_owners[which] != current_context();
    return handle && (!*stream || is_bad) ? BAD_HANDLE : captured && !handle ? CAPTURED : 0;
}

static uint64_t number_at(const void *handle) { /* in whichever context */
    const uintptr_t which = (uintptr_t)handle - STREAM;
    return which < MOST_STREAMS ? streams[which] : 0;
}
/* The stream is captured until it is NULL; then the capture is given to a stream. */
API int fake_capture(void *stream) {
    captured = number_at(stream);
    n_graph = captured ? 0 : n_graph;
    return stream && !captured ? BAD_HANDLE : 0;
}
API int fake_replay(void *stream) {
    const uint64_t number = number_at(stream);
    int code = number ? 0 : BAD_HANDLE;
    pthread_mutex_lock(&chip_lock);
    for (int i = 0; i < n_graph && code == 0; i++) {
        graph[i].stream = number;
        code = enqueue(&graph[i]);
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_stream_new(int code, unsigned flags, void **stream) {
    int i = 0;
    code = needs_device(code);
    pthread_mutex_lock(&chip_lock);
    while (i < MOST_STREAMS - 1 && streams[i]) {
        i++;
    }
    if (code == 0) {
        streams[i] = NUMBERED | (flags == 1 ? LOOSE : 0) | ++last_number;
        stream_owners[i] = current_context();
        *stream = (void *)(uintptr_t)(STREAM + i);
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_stream_free(const char *name, const void *stream) {
    const uintptr_t which = (uintptr_t)stream - STREAM;
    int code = needs_device(note(name, " %p", stream));
    pthread_mutex_lock(&chip_lock);
    code = code ? code : which >= MOST_STREAMS || !streams[which] ? BAD_HANDLE : 0;
    if (code == 0) {
        streams[which] = 0;
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

/* -- Calls that both makers have --------------------------------------------------------------- */

static int call_alloc(const char *name, uint64_t *at, size_t bytes) {
    const int code = needs_no_capture(note(name, " %zu", bytes));
    pthread_mutex_lock(&chip_lock);
    const int taken = code ? code : take(at, bytes, 1);
    pthread_mutex_unlock(&chip_lock);
    return taken;
}

static int call_free(const char *name, uint64_t at) {
    int code = needs_no_capture(note(name, ""));
    pthread_mutex_lock(&chip_lock);
    if (code == 0) {
        finish_all(); /* a driver waits for the device first */
        code = INVALID;
    }
    for (int i = 0; i < n_blocks && code == INVALID; i++) {
        if (blocks[i].live == 1 && blocks[i].at == at) {
            blocks[i].live = 0;
            taken -= blocks[i].bytes;
            code = 0;
        }
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_wait(const char *name) {
    const int code = needs_no_capture(note(name, ""));
    pthread_mutex_lock(&chip_lock);
    if (code == 0) {
        finish_all();
    }
    pthread_mutex_unlock(&chip_lock);
    return code ? code : broken;
}

static int call_stream_sync(const char *name, void *stream) {
    uint64_t number;
    int code = needs_no_capture(note(name, " %p", stream));
    pthread_mutex_lock(&chip_lock);
    code = code ? code : number_of(stream, &number);
    if (code == 0) {
        finish(number);
    }
    pthread_mutex_unlock(&chip_lock);
    return code ? code : broken;
}

/* Rows between host and device, in stream order; the host is a side, so it happens now. */
static int call_host_rows(int code, int to_device, uint64_t far, size_t far_pitch, char *near,
                          size_t near_pitch, size_t bytes, size_t rows, void *stream) {
    uint64_t number;
    code = needs_no_capture(code);
    pthread_mutex_lock(&chip_lock);
    code = code ? code : number_of(stream, &number);
    if (code == 0) {
        finish(number);
    }
    for (size_t row = 0; row < rows && code == 0; row++) {
        char *const at = within(far + row * far_pitch, bytes);
        code = at ? 0 : INVALID;
        if (at) {
            memcpy(to_device ? at : near + row * near_pitch,
                   to_device ? near + row * near_pitch : at, bytes);
        }
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_within_rows(int code, uint64_t to, size_t to_pitch, uint64_t from,
                            size_t from_pitch, size_t bytes, size_t rows, void *stream) {
    uint64_t number;
    code = needs_device(code);
    pthread_mutex_lock(&chip_lock);
    code = code ? code : number_of(stream, &number);
    for (size_t row = 0; row < rows && code == 0; row++) {
        const work w = {.stream = number, .bytes = bytes, .to = to + row * to_pitch,
                        .from = from + row * from_pitch};
        code = within(w.to, bytes) && within(w.from, bytes) ? enqueue(&w) : INVALID;
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_fill(int code, uint64_t to, uint32_t value, size_t words, void *stream) {
    work w = {.to = to, .value = value, .bytes = 4 * words};
    code = needs_device(code);
    pthread_mutex_lock(&chip_lock);
    code = code ? code : number_of(stream, &w.stream);
    code = code ? code : within(to, w.bytes) ? enqueue(&w) : INVALID;
    pthread_mutex_unlock(&chip_lock);
    return code;
}

/* -- Marks in streams -------------------------------------------------------------------------- */

static uint64_t events[MOST_EVENTS]; /* each one's last record */
static unsigned char event_lives[MOST_EVENTS];
static void *event_owners[MOST_EVENTS];

static int call_event_new(const char *name, void **event) {
    const int code = needs_device(note(name, ""));
    for (int i = 0; i < MOST_EVENTS && code == 0; i++) {
        if (!event_lives[i]) {
            event_lives[i] = 1;
            event_owners[i] = current_context();
            events[i] = 0;
            *event = (void *)(uintptr_t)(EVENT + i);
            return 0;
        }
    }
    return code ? code : NO_MEMORY;
}

static int event_of(const void *event) {
    const uintptr_t which = (uintptr_t)event - EVENT;
    return which < MOST_EVENTS && event_lives[which] && event_owners[which] == current_context()
               ? (int)which
               : -1;
}

static int call_event_free(const char *name, const void *event) {
    const int code = needs_device(note(name, "")), which = event_of(event);
    if (code == 0 && which >= 0) {
        event_lives[which] = 0;
    }
    return code ? code : which < 0 ? INVALID : 0;
}

static int call_event_record(const char *name, const void *event, void *stream) {
    work w = {0};
    int code = needs_device(note(name, " stream %p", stream));
    pthread_mutex_lock(&chip_lock);
    const int which = event_of(event);
    code = code ? code : which < 0 ? INVALID : number_of(stream, &w.stream);
    if (code == 0) {
        w.mark = events[which] = ++last_number;
        enqueue(&w);
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_event_await(const char *name, const void *event, void *stream) {
    work w = {0};
    int code = needs_device(note(name, " stream %p", stream));
    pthread_mutex_lock(&chip_lock);
    const int which = event_of(event);
    code = code ? code : which < 0 ? INVALID : number_of(stream, &w.stream);
    if (code == 0 && place_of(events[which]) >= 0) {
        w.awaits = events[which];
        enqueue(&w);
    }
    pthread_mutex_unlock(&chip_lock);
    return code;
}

static int call_event_query(const char *name, const void *event) {
    const int code = needs_no_capture(note(name, "")), which = event_of(event);
    if (code || which < 0) {
        return code ? code : INVALID;
    }
    pthread_mutex_lock(&chip_lock);
    const int waits = place_of(events[which]) >= 0;
    pthread_mutex_unlock(&chip_lock);
    return waits ? NOT_READY : 0;
}
