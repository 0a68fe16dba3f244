/* cpu_pool.c: a small pool of threads, and how many of them this process may use.

   Who calls it: device.c makes a pool per CPU device; cpu.c runs its work items on it.

   The caller of a run is thread 0 and works too; the others are started by the first run that has
   something for them and then sleep on `wake` between runs. A run is

       caller   post {fn, arg, n}, open = 1, wake all | items | open = 0 | wait until inside = 0
       worker   asleep .......... inside + 1 | items | inside - 1, tell the caller | asleep ....

   Items are handed out by one atomic counter. A worker that wakes after `open` went back to 0
   sleeps again, so nothing of a run is touched after it returned.

   Workers block all signals: handlers run on the program's own threads. fork() copies the calling
   thread alone, so the handlers at the end of this file hold every pool's lock across it and give
   the child fresh pools, whose workers start anew when the child needs them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "cpu_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct attn__pool {
    struct attn__pool *next, **link; /* in all_pools */
    pthread_mutex_t lock;            /* of what follows, but the atomics */
    pthread_cond_t wake, done;
    pthread_t *worker; /* [threads - 1] */
    int threads;
    int started;      /* workers that exist */
    int open, inside; /* a run takes workers; workers in it */
    int stop;
    uint64_t run; /* number of the latest run */
    void (*fn)(void *arg, int64_t item, int thread);
    void *arg;
    int64_t n;
    _Atomic int64_t next_item;
    atomic_flag busy; /* a run has the pool */
};

typedef struct worker_arg {
    struct attn__pool *pool;
    int thread;
} worker_arg;

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attn__pool *all_pools;

/* -- Runs -------------------------------------------------------------------------------------- */

static void do_items(struct attn__pool *pool, int thread) {
    for (;;) {
        const int64_t item = atomic_fetch_add_explicit(&pool->next_item, 1, memory_order_relaxed);
        if (item >= pool->n) {
            return;
        }
        pool->fn(pool->arg, item, thread);
    }
}

static void *worker_main(void *arg) {
    const worker_arg self = *(worker_arg *)arg;
    struct attn__pool *const pool = self.pool;
    uint64_t seen = 0;
    free(arg);
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (!pool->open || pool->run == seen) {
            pthread_cond_wait(&pool->wake, &pool->lock);
            continue;
        }
        seen = pool->run;
        pool->inside++;
        pthread_mutex_unlock(&pool->lock);
        do_items(pool, self.thread);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0) {
            pthread_cond_signal(&pool->done);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Starts workers until there are `want`, or the system gives no more. Called with the lock. */
static void start_workers(struct attn__pool *pool, int want) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < want) {
        worker_arg *const arg = (worker_arg *)malloc(sizeof *arg);
        if (!arg) {
            break;
        }
        arg->pool = pool;
        arg->thread = pool->started + 1;
        if (pthread_create(&pool->worker[pool->started], NULL, worker_main, arg) != 0) {
            free(arg);
            break;
        }
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void attn__pool_run(struct attn__pool *pool, int64_t n,
                    void (*fn)(void *arg, int64_t item, int thread), void *arg) {
    if (!pool || pool->threads == 1 || n < 2 || atomic_flag_test_and_set(&pool->busy)) {
        for (int64_t item = 0; item < n; item++) {
            fn(arg, item, 0);
        }
        return;
    }
    const int want = n < pool->threads ? (int)n - 1 : pool->threads - 1;
    pthread_mutex_lock(&pool->lock);
    start_workers(pool, want);
    pool->fn = fn;
    pool->arg = arg;
    pool->n = n;
    atomic_store_explicit(&pool->next_item, 0, memory_order_relaxed);
    pool->run++;
    pool->open = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);

    do_items(pool, 0);

    pthread_mutex_lock(&pool->lock);
    pool->open = 0;
    while (pool->inside > 0) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    atomic_flag_clear(&pool->busy);
}

/* -- fork -------------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&all_lock);
    for (struct attn__pool *p = all_pools; p; p = p->next) {
        pthread_mutex_lock(&p->lock);
    }
}

static void after_fork_parent(void) {
    for (struct attn__pool *p = all_pools; p; p = p->next) {
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&all_lock);
}

/* No worker and no run, also if there were some; who waited on a condition is gone. */
static void fresh(struct attn__pool *pool) {
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->started = pool->open = pool->inside = 0;
    atomic_flag_clear(&pool->busy);
}

static void after_fork_child(void) {
    for (struct attn__pool *p = all_pools; p; p = p->next) {
        fresh(p);
    }
    after_fork_parent();
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* -- Life -------------------------------------------------------------------------------------- */

int attn__pool_new(int threads, struct attn__pool **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int n = threads < 1 ? 1 : threads;
    const size_t bytes = sizeof(struct attn__pool) + (size_t)(n - 1) * sizeof(pthread_t);
    struct attn__pool *const pool = (struct attn__pool *)attn__alloc(bytes, "a thread pool");
    if (!pool) {
        return ATTN_MEMORY;
    }
    memset(pool, 0, bytes);
    pool->threads = n;
    pool->worker = (pthread_t *)(pool + 1);
    pthread_mutex_init(&pool->lock, NULL);
    fresh(pool);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&all_lock);
    pool->next = all_pools;
    pool->link = &all_pools;
    if (all_pools) {
        all_pools->link = &pool->next;
    }
    all_pools = pool;
    pthread_mutex_unlock(&all_lock);
    *out = pool;
    return ATTN_OK;
}

void attn__pool_free(struct attn__pool *pool) {
    if (!pool) {
        return;
    }
    pthread_mutex_lock(&all_lock);
    *pool->link = pool->next;
    if (pool->next) {
        pool->next->link = pool->link;
    }
    pthread_mutex_unlock(&all_lock);
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) {
        pthread_join(pool->worker[i], NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* -- Cores ------------------------------------------------------------------------------------- */

/* Reads up to two numbers of a small file; "max" reads as -1. Returns how many there were. */
static int read_numbers(const char *path, double out[2]) {
    char text[128];
    FILE *const f = fopen(path, "re");
    if (!f) {
        return 0;
    }
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    if (strncmp(text, "max", 3) == 0) {
        out[0] = -1;
        return sscanf(text + 3, "%lf", &out[1]) == 1 ? 2 : 1;
    }
    return sscanf(text, "%lf %lf", &out[0], &out[1]);
}

static int smaller_quota(int cores, double quota, double period) {
    if (!(quota > 0) || !(period > 0) || quota / period >= cores) {
        return cores;
    }
    const int whole = (int)(quota / period);
    return quota > whole * period ? whole + 1 : whole;
}

/* The limit in the group `path` below `mount` and in every group above it. */
static int group_cores(const char *mount, char *path, int v2, int cores) {
    char file[2600]; /* mount, path and the name */
    for (;;) {
        double quota[2] = {-1, -1}, period[2] = {-1, -1};
        if (v2) {
            snprintf(file, sizeof file, "%s%s/cpu.max", mount, path);
            if (read_numbers(file, quota) == 2) {
                cores = smaller_quota(cores, quota[0], quota[1]);
            }
        } else {
            snprintf(file, sizeof file, "%s%s/cpu.cfs_quota_us", mount, path);
            const int has_quota = read_numbers(file, quota);
            snprintf(file, sizeof file, "%s%s/cpu.cfs_period_us", mount, path);
            if (has_quota && read_numbers(file, period)) {
                cores = smaller_quota(cores, quota[0], period[0]);
            }
        }
        char *const slash = strrchr(path, '/');
        if (!slash) {
            return cores;
        }
        *slash = 0;
    }
}

/* Whether the comma-separated list holds the controller "cpu". */
static int has_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == 0 || at[3] == ',')) {
            return 1;
        }
    }
    return 0;
}

int attn__cgroup_cores(const char *table, const char *root, int cores) {
    char line[1024], mount[1250];
    FILE *const f = fopen(table, "re");
    if (!f) {
        return cores;
    }
    while (fgets(line, sizeof line, f)) { /* number:controllers:path */
        char *const list = strchr(line, ':');
        char *const path = list ? strchr(list + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        *path = 0;
        path[1 + strcspn(path + 1, "\n")] = 0;
        const int v2 = list[1] == 0;
        if (!v2 && !has_cpu(list + 1)) {
            continue;
        }
        snprintf(mount, sizeof mount, v2 ? "%.200s" : "%.200s/%s", root, list + 1);
        cores = group_cores(mount, path + 1, v2, cores);
    }
    fclose(f);
    return cores;
}

int attn__cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    for (int most = 1024; most <= 1 << 20; most *= 4) {
        cpu_set_t *const set = CPU_ALLOC((size_t)most);
        if (!set) {
            break;
        }
        const size_t bytes = CPU_ALLOC_SIZE((size_t)most);
        const int got = sched_getaffinity(0, bytes, set);
        if (got == 0) {
            cores = CPU_COUNT_S(bytes, set);
        }
        CPU_FREE(set);
        if (got == 0) {
            break;
        }
    }
#endif
    return attn__cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup", cores < 1 ? 1 : (int)cores);
}
