/* device.c: the list of devices and opening one; memory and streams are in memory.c.

   Who calls it: the public API. Two hosts, by name, and one table of drivers, whose devices are
   named after them: "emu:sm_80". */
#define _POSIX_C_SOURCE 200809L
#include "emu/emu_driver.h"
#include "blocks.h"
#include "gpu_make.h"
#include "gpu_module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { HOST = 1, MOST_THREADS = 1024, MOST_CHIPS = 64 };

static const attn__engine *const hosts[] = {&attn__cpu, &attn__ref};
enum { HOSTS = sizeof hosts / sizeof hosts[0] };
static const attn__driver *const drivers[] = {&attn__cuda, &attn__hip, &attn__emu,
                                               &attn__make};
enum { DRIVERS = sizeof drivers / sizeof drivers[0] };

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

uint64_t attn__host_memory(void) {
    pthread_once(&host_once, host_ask);
    return host_bytes;
}

static void describe(attn_device_info *info, const attn__engine *engine, int threads,
                     uint64_t used) {
    *info = (attn_device_info){.size = sizeof *info, .kind = HOST, .index = 0, .threads = threads};
    info->memory = attn__host_memory();
    info->used = used;
    snprintf(info->name, sizeof info->name, "%s", engine->name);
    memcpy(info->arch, host_arch, sizeof host_arch);
}

int attn_device_list(attn_device_info *list, int capacity) {
    attn_device_info all[HOSTS + MOST_CHIPS];
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
    for (int i = 0; i < DRIVERS; i++) {
        const int room = HOSTS + MOST_CHIPS - n, there = drivers[i]->list(all + n, room);
        n += there < room ? there : room;
    }
    for (int i = 0; i < n && i < capacity; i++) { /* the first one's size is that of each */
        char *const at = (char *)list + (size_t)i * list->size;
        memcpy(at, &list->size, sizeof list->size);
        ATTN_TRY(attn__struct_out(at, &all[i], sizeof all[i], "attn_device_info"));
    }
    return n;
}

static const attn__driver *driver_of(const char *name) {
    for (int i = 0; i < DRIVERS; i++) {
        const size_t n = strlen(drivers[i]->name);
        if (strncmp(name, drivers[i]->name, n) == 0 && name[n] == ':') {
            return drivers[i];
        }
    }
    return NULL;
}

/* ATTN_DEVICE with what there is. */
static int no_device(const char *name) {
    attn_device_info all[HOSTS + MOST_CHIPS];
    char names[512] = "auto", meant[64] = "";
    const size_t length = strlen(name);
    all->size = sizeof *all;
    const int n = attn_device_list(all, HOSTS + MOST_CHIPS);
    for (int i = 0; i < n; i++) {
        const size_t at = strlen(names);
        if (!all[i].missing[0]) {
            snprintf(names + at, sizeof names - at, ", %s", all[i].name);
        }
        if (!*meant && strncmp(all[i].name, name, length) == 0 && all[i].name[length] == ':') {
            snprintf(meant, sizeof meant, " (is %s meant?)", all[i].name);
        }
    }
    return attn__fail(ATTN_DEVICE, "name", "there is no device \"%s\"%s; here are %s", name, meant,
                      names);
}

static int read_threads(const attn_device_options *options, const char *name,
                        const attn__engine *engine, int *threads) {
    attn_device_options o = {.size = sizeof o};
    if (options) {
        ATTN_TRY(attn__struct_in(&o, sizeof o, options, "attn_device_options"));
    }
    const int most = engine == &attn__cpu ? MOST_THREADS : 1;
    if (o.threads < 0 || o.threads > most) {
        return attn__fail(ATTN_INVALID, "options.threads",
                          "options.threads is %d; device %s allows 0 (its default) to %d",
                          o.threads, name, most);
    }
    *threads = o.threads ? o.threads : engine == &attn__cpu ? attn__cores() : 1;
    return ATTN_OK;
}

static int open_host(attn_device *d) {
    snprintf(d->name, sizeof d->name, "%s", d->engine->name);
    d->kind = HOST;
    if (d->engine != &attn__cpu) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__cpu_choose(&d->ops));
    return attn__pool_new(d->threads, &d->pool);
}

static int open_chip(attn_device *d, const char *name) {
    attn_device_info info = {.size = sizeof info};
    ATTN_TRY(d->driver->open(name, &d->chip));
    ATTN_TRY(d->driver->query(d->chip, &info));
    snprintf(d->name, sizeof d->name, "%s", info.name);
    d->kind = info.kind;
    d->index = info.index;
    return ATTN_OK;
}

int attn_device_open(const char *name, const attn_device_options *options, attn_device **device) {
    if (!device) {
        return attn__fail(ATTN_INVALID, "device",
                          "device is NULL; a place for the handle is wanted");
    }
    *device = NULL;
    name = name && strcmp(name, "auto") != 0 ? name : "cpu";
    const attn__driver *const driver = driver_of(name);
    const attn__engine *engine = driver ? &attn__gpu : NULL;
    for (int i = 0; i < HOSTS && !engine; i++) {
        engine = strcmp(name, hosts[i]->name) == 0 ? hosts[i] : NULL;
    }
    if (!engine) {
        return no_device(name);
    }
    int threads = 0;
    ATTN_TRY(read_threads(options, name, engine, &threads));
    attn_device *const d = attn__alloc(sizeof *d, "a device");
    if (!d) {
        return ATTN_MEMORY;
    }
    *d = (attn_device){.refs = 1, .engine = engine, .threads = threads, .driver = driver};
    const int status = driver ? open_chip(d, name) : open_host(d);
    if (status < 0) {
        attn_device_release(d);
        return status;
    }
    *device = d;
    return ATTN_OK;
}

int attn_device_query(const attn_device *device, attn_device_info *info) {
    ATTN_TRY(attn__device_check(device));
    attn_device_info all = {.size = sizeof all};
    const uint64_t used = __atomic_load_n(&device->used, __ATOMIC_RELAXED);
    if (device->driver) {
        ATTN_TRY(device->driver->query(device->chip, &all));
        all.used = used;
    } else {
        describe(&all, device->engine, device->threads, used);
    }
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
        if (device->chip) {
            attn__code_close(device);
            attn__blocks_trim(device);
            device->driver->close(device->chip);
        }
        free(device);
    }
}

int attn__device_check(const attn_device *device) {
    return device ? ATTN_OK
                  : attn__fail(ATTN_INVALID, "device", "device is NULL; a handle is wanted");
}
