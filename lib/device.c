/* device.c: the list of devices and opening one; memory and streams are in memory.c.

   Who calls it: the public API. */
#define _POSIX_C_SOURCE 200809L
#include "attn_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { HOST = 1, MOST_THREADS = 1024, MOST_MISSING = 4 };

static const attn__engine *const hosts[] = {&attn__cpu, &attn__ref};
enum { HOSTS = sizeof hosts / sizeof hosts[0] };

/* Asked of the system once: the bytes of memory, and the processor's name, or else the machine's
   architecture. */
static pthread_once_t host_once = PTHREAD_ONCE_INIT;
static uint64_t host_bytes;
static char host_arch[64];

static void host_ask(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    host_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    struct utsname machine;
    snprintf(host_arch, sizeof host_arch, "%.63s", uname(&machine) == 0 ? machine.machine : "");
    FILE *const file = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        const char *const colon = strstr(line, ": ");
        if (colon && strncmp(line, "model name", 10) == 0) {
            const int n = (int)strcspn(colon + 2, "\n");
            snprintf(host_arch, sizeof host_arch, "%.*s", n, colon + 2);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

static uint64_t host_memory(void) {
    pthread_once(&host_once, host_ask);
    return host_bytes;
}

static void describe(attn_device_info *info, const attn__engine *engine, int threads,
                     uint64_t used) {
    *info = (attn_device_info){.size = sizeof *info, .kind = HOST, .index = 0, .threads = threads};
    info->memory = host_memory();
    info->used = used;
    snprintf(info->name, sizeof info->name, "%s", engine->name);
    memcpy(info->arch, host_arch, sizeof host_arch);
}

int attn_device_list(attn_device_info *list, int capacity) {
    attn_device_info all[HOSTS + MOST_MISSING];
    int n = 0;
    if (capacity < 0) {
        return attn__fail(ATTN_INVALID, "capacity", "capacity is %d; 0 or more is allowed",
                          capacity);
    }
    if (capacity > 0 && !list) {
        return attn__fail(ATTN_INVALID, "list", "list is NULL with a capacity of %d", capacity);
    }
    for (int i = 0; i < HOSTS; i++) {
        describe(&all[n++], hosts[i], hosts[i] == &attn__cpu ? attn__cores() : 1, 0);
    }
    n += attn__target_list(all + n);
    for (int i = 0; i < n && i < capacity; i++) { /* the first one's size is that of each */
        char *const at = (char *)list + (size_t)i * list->size;
        memcpy(at, &list->size, sizeof list->size);
        ATTN_TRY(attn__struct_out(at, &all[i], sizeof all[i], "attn_device_info"));
    }
    return n;
}

/* ATTN_DEVICE with the sentence that tells what is missing, or what there is. */
static int no_device(const char *name) {
    attn_device_info missing[MOST_MISSING];
    const int n = attn__target_list(missing);
    for (int i = 0; i < n; i++) {
        if (strcmp(missing[i].name, name) == 0) {
            return attn__fail(ATTN_DEVICE, "name", "device %s cannot be opened: %s", name,
                              missing[i].missing);
        }
    }
    return attn__fail(ATTN_DEVICE, "name", "there is no device \"%s\"; auto, cpu and ref are here",
                      name);
}

static int read_threads(const attn_device_options *options, const attn__engine *engine,
                        int *threads) {
    attn_device_options o = {.size = sizeof o};
    if (options) {
        ATTN_TRY(attn__struct_in(&o, sizeof o, options, "attn_device_options"));
    }
    const int most = engine == &attn__cpu ? MOST_THREADS : 1;
    if (o.threads < 0 || o.threads > most) {
        return attn__fail(ATTN_INVALID, "options.threads",
                          "options.threads is %d; device %s allows 0 (its default) to %d",
                          o.threads, engine->name, most);
    }
    *threads = o.threads ? o.threads : engine == &attn__cpu ? attn__cores() : 1;
    return ATTN_OK;
}

int attn_device_open(const char *name, const attn_device_options *options, attn_device **device) {
    if (!device) {
        return attn__fail(ATTN_INVALID, "device",
                          "device is NULL; a place for the handle is wanted");
    }
    *device = NULL;
    const attn__engine *engine = NULL;
    for (int i = 0; i < HOSTS && !engine; i++) {
        const int first = !name || strcmp(name, "auto") == 0;
        engine = first || strcmp(name, hosts[i]->name) == 0 ? hosts[i] : NULL;
    }
    if (!engine) {
        return no_device(name);
    }
    int threads = 0;
    const struct attn__tile_ops *ops = NULL;
    ATTN_TRY(read_threads(options, engine, &threads));
    if (engine == &attn__cpu) {
        ATTN_TRY(attn__cpu_choose(&ops));
    }
    attn_device *const d = attn__alloc(sizeof *d, "a device");
    if (!d) {
        return ATTN_MEMORY;
    }
    *d = (attn_device){.refs = 1, .kind = HOST, .engine = engine, .threads = threads, .ops = ops};
    snprintf(d->name, sizeof d->name, "%s", engine->name);
    const int status = engine == &attn__cpu ? attn__pool_new(threads, &d->pool) : ATTN_OK;
    if (status < 0) {
        free(d);
        return status;
    }
    *device = d;
    return ATTN_OK;
}

int attn_device_query(const attn_device *device, attn_device_info *info) {
    ATTN_TRY(attn__device_check(device));
    attn_device_info all;
    describe(&all, device->engine, device->threads,
             __atomic_load_n(&device->used, __ATOMIC_RELAXED));
    return attn__struct_out(info, &all, sizeof all, "attn_device_info");
}

attn_device *attn_device_retain(attn_device *device) {
    if (device) {
        __atomic_fetch_add(&device->refs, 1, __ATOMIC_RELAXED);
    }
    return device;
}

void attn_device_release(attn_device *device) {
    if (device && __atomic_sub_fetch(&device->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        if (device->pool) {
            attn__pool_free(device->pool);
        }
        free(device);
    }
}

int attn__device_check(const attn_device *device) {
    return device ? ATTN_OK
                  : attn__fail(ATTN_INVALID, "device", "device is NULL; a handle is wanted");
}
