/* fake_gpu_code.h: modules, launches and compilers of the chip in fake_gpu.h.

   Who includes it: fake_cuda.c and fake_hip.c. */
#include "fake_gpu.h"

/* -- Modules and launches ---------------------------------------------------------------------- */

static struct {
    int device;
    void *owner;  /* its context */
    void *module; /* the emulator's */
    uint64_t cell;
} modules[MOST_MODULES];
static int n_modules;
static const char *const fixed[] = {"one", "two", "attn_fwd", "attn_combine", "attn_clear",
                                    "attn_spans"};

static int call_load(const char *name, void **module, const void *code) {
    const int failed =
        needs_no_capture(note(name, " %.8s", emulator ? "code" : (const char *)code));
    if (failed || n_modules == MOST_MODULES) {
        return failed ? failed : NO_MEMORY;
    }
    const int which = n_modules++;
    modules[which].device = current_device();
    modules[which].owner = current_context();
    modules[which].module = emulator ? emulator->load(current_device(), code) : NULL;
    *module = (void *)(uintptr_t)(MODULE + which);
    return emulator && !modules[which].module ? INVALID : 0;
}

static int call_unload(const char *name, const void *module) {
    const uintptr_t which = (uintptr_t)module - MODULE;
    const int failed = needs_device(note(name, " %p", module));
    if (failed || which >= (uintptr_t)n_modules || modules[which].owner != current_context()) {
        return failed ? failed : BAD_HANDLE;
    }
    pthread_mutex_lock(&chip_lock);
    finish_all();
    pthread_mutex_unlock(&chip_lock);
    if (emulator && modules[which].module) {
        emulator->unload(modules[which].device, modules[which].module);
        modules[which].module = NULL;
    }
    return 0;
}

static int has_function(const char *name) {
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        if (strcmp(fixed[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int call_function(const char *call, void **at, const void *module, const char *name) {
    const uintptr_t which = (uintptr_t)module - MODULE;
    const int failed = needs_device(note(call, " %p %s", module, name));
    if (failed || which >= (uintptr_t)n_modules || n_functions == MOST_FUNCTIONS ||
        !(emulator ? strncmp(name, "attn_", 5) == 0 : has_function(name))) {
        return failed ? failed : NOT_FOUND;
    }
    function *const f = &functions[n_functions];
    *f = (function){modules[which].device, modules[which].owner, modules[which].module, "",
                    48 << 10};
    snprintf(f->name, sizeof f->name, "%s", name);
    *at = (void *)(uintptr_t)(FUNCTION + n_functions++);
    return 0;
}

static int call_global(const char *call, uint64_t *at, size_t *bytes, const void *module,
                       const char *name) {
    const uintptr_t which = (uintptr_t)module - MODULE;
    int32_t value = 49152;
    const int failed = needs_device(note(call, " %p %s", module, name));
    if (failed || which >= (uintptr_t)n_modules) {
        return failed ? failed : INVALID;
    }
    if (emulator ? emulator->number(modules[which].device, modules[which].module, name, &value) != 0
                 : strcmp(name, "NUMBER") != 0 && strcmp(name, "attn_fwd_shared") != 0) {
        return NOT_FOUND;
    }
    pthread_mutex_lock(&chip_lock);
    const int code = modules[which].cell ? 0 : take(&modules[which].cell, 4, 2);
    if (code == 0) {
        memcpy(within(modules[which].cell, 4), &value, 4);
    }
    pthread_mutex_unlock(&chip_lock);
    *at = modules[which].cell;
    *bytes = 4;
    return code;
}

static function *function_of(const void *handle) {
    const uintptr_t which = (uintptr_t)handle - FUNCTION;
    return which < (uintptr_t)n_functions ? &functions[which] : NULL;
}

/* A function runs where its module was loaded. */
static int call_launch(const char *name, const void *handle, const unsigned grid[3],
                       const unsigned block[3], unsigned shared, void *stream, void **params,
                       void **extra) {
    const int code = needs_device(note(name, " %u stream %p", grid[0], stream));
    const function *const f = function_of(handle);
    if (code) {
        return code;
    }
    const int is_line = grid[0] > 0 && grid[1] == 1 && grid[2] == 1 && block[0] > 0 &&
                        block[0] <= 1024 && block[1] == 1 && block[2] == 1;
    if (f && f->owner != current_context()) {
        return BAD_HANDLE;
    }
    if (!f || !params || extra || !is_line ||
        (int)shared > f->allowed) {
        return INVALID;
    }
    const size_t bytes = emulator ? emulator->params : SOME_PARAMS;
    uint64_t number;
    if (number_of(stream, &number)) {
        return INVALID;
    }
    work w = {.stream = number, .function = f, .blocks = grid[0], .threads = block[0],
              .shared = shared};
    memcpy(w.params, params[0], bytes < PARAMS ? bytes : PARAMS);
    last = (fake_launch){.grid = grid[0], .block = block[0], .shared = shared, .stream = stream,
                         .count = last.count + 1};
    snprintf(last.kernel, sizeof last.kernel, "%s", f->name);
    memcpy(last.params, w.params, sizeof last.params);
    pthread_mutex_lock(&chip_lock);
    enqueue(&w);
    pthread_mutex_unlock(&chip_lock);
    return 0;
}

/* -- Compilers: their code is no code, unless there is an emulator ----------------------------- */

enum { MOST_FILES = 256 };
static struct program {
    char *entry, *name[MOST_FILES + 1], *text[MOST_FILES + 1];
    int files;
    void *code;
    size_t bytes;
} program; /* one at a time */

static int rtc_create(const char *call, void **to, const char *text, const char *name, int n,
                      const char *const *texts, const char *const *names) {
    program = (struct program){.entry = strdup(name)};
    if (n > MOST_FILES) {
        return INVALID;
    }
    for (int i = 0; i < n; i++) {
        program.name[program.files] = strdup(names[i]);
        program.text[program.files++] = strdup(texts[i]);
    }
    *to = &program;
    return note(call, " %s %zu %d", name, strlen(text), n);
}

static int rtc_compile(const char *call, int n, const char *const *options) {
    const int code = note(call, " %d %s", n, options[0]);
    if (code || !emulator) {
        program.code = strdup("fakecode");
        program.bytes = 9;
        return code;
    }
    return emulator->compile(program.entry, program.files, (const char *const *)program.name,
                             (const char *const *)program.text, n, options, &program.code,
                             &program.bytes);
}

static int rtc_destroy(void) {
    for (int i = 0; i < program.files; i++) {
        free(program.name[i]);
        free(program.text[i]);
    }
    free(program.entry);
    free(program.code);
    program = (struct program){0};
    return 0;
}
