/* gpu_module.c: the loaded kernels of this process, each once per chip.

   Who calls it: gpu_kernel.c, gpu.c. Equal jobs have equal keys, so plans that need the same code
   share it:

       key, chip -> module     asked for by n plans; without any it stays for the next one, until
                               MOST_IDLE others are idle, too, or the chip is closed

   One thread makes a module while others who want it wait. A child of fork() has no such thread:
   what was being made is not there, and is made anew. */
#include "gpu_module.h"
#include "fork.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_IDLE = 64 };

struct attn__kernel_code {
    attn__kernel_code *next; /* what was wanted last comes first */
    const attn__driver *driver;
    attn__chip *chip;
    attn__module *module; /* NULL: being made */
    int users;
    char key[ATTN__KEY];
};

static pthread_cond_t made = PTHREAD_COND_INITIALIZER;
static attn__kernel_code *list;

static attn__kernel_code **find(const attn_device *device, const char *key) {
    attn__kernel_code **at = &list;
    while (*at && ((*at)->chip != device->chip || strcmp((*at)->key, key) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

static void unload(attn__kernel_code **at) {
    attn__kernel_code *const gone = *at;
    *at = gone->next;
    if (gone->module) {
        gone->driver->unload(gone->chip, gone->module);
    }
    free(gone);
}

/* The idle ones that were wanted longest ago go first. */
static void drop_idle(void) {
    int idle = 0;
    for (attn__kernel_code **at = &list; *at;) {
        idle += (*at)->users == 0;
        if ((*at)->users == 0 && idle > MOST_IDLE) {
            unload(at);
        } else {
            at = &(*at)->next;
        }
    }
}

static int load(const attn__kernel_code *code, const attn__job *job, attn__module **module) {
    void *bytes;
    size_t n;
    ATTN_TRY(attn__jit(job, code->key, &bytes, &n));
    int status = code->driver->load(code->chip, bytes, n, module);
    if (status >= 0 && code->driver->keep) {
        char name[ATTN__KEY];
        attn__job_key(job, name);
        status = code->driver->keep(code->chip, name, bytes, n);
    }
    free(bytes);
    return status;
}

int attn__code_get(const attn_device *device, const attn__job *job, attn__kernel_code **code) {
    char key[ATTN__KEY];
    *code = NULL;
    ATTN_TRY(attn__jit_key(job, key));
    attn__lock(ATTN__MODULES);
    attn__kernel_code *it;
    while ((it = *find(device, key)) && !it->module) {
        attn__lock_wait(ATTN__MODULES, &made);
    }
    if (it) {
        it->users++;
        attn__unlock(ATTN__MODULES);
        *code = it;
        return ATTN_OK;
    }
    it = attn__alloc(sizeof *it, "kernels");
    if (!it) {
        attn__unlock(ATTN__MODULES);
        return ATTN_MEMORY;
    }
    *it = (attn__kernel_code){.next = list, .driver = device->driver, .chip = device->chip,
                              .users = 1};
    memcpy(it->key, key, sizeof key);
    list = it;
    attn__unlock(ATTN__MODULES);

    attn__module *module = NULL;
    const int status = load(it, job, &module);

    attn__lock(ATTN__MODULES);
    it->module = module;
    if (status < 0) {
        unload(find(device, key));
    }
    pthread_cond_broadcast(&made);
    attn__unlock(ATTN__MODULES);
    *code = status < 0 ? NULL : it;
    return status;
}

attn__module *attn__code_module(const attn__kernel_code *code) {
    return code->module;
}

void attn__code_put(attn__kernel_code *code) {
    if (code) {
        attn__lock(ATTN__MODULES);
        code->users--;
        drop_idle();
        attn__unlock(ATTN__MODULES);
    }
}

void attn__code_close(const attn_device *device) {
    attn__lock(ATTN__MODULES);
    for (attn__kernel_code **at = &list; *at;) {
        if ((*at)->chip == device->chip) {
            unload(at);
        } else {
            at = &(*at)->next;
        }
    }
    attn__unlock(ATTN__MODULES);
}

void attn__modules_in_child(void) {
    pthread_cond_init(&made, NULL);
    for (attn__kernel_code **at = &list; *at;) {
        if ((*at)->module) {
            at = &(*at)->next;
        } else {
            unload(at);
        }
    }
}
