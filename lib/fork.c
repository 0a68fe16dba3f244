/* fork.c: the locks of what a process has once, free and their data whole in a child of fork().

   Who calls it: the files that fork.h names. A child has the forking thread alone. So that thread
   takes every lock before, which waits for whoever is half way through a change:

       fork()   hold all, in order  ---+--- parent: release all
                                       |
                                       +--- child:  forget what other threads had begun,
                                                    release all

   What such a thread does without a lock (a compile, the question which compiler it is) may go on
   for long: nobody waits for it. The
   thread pools have locks of their own, and the same handlers (cpu_pool.c). */
#define _POSIX_C_SOURCE 200809L
#include "fork.h"

static pthread_mutex_t lock[ATTN__LOCKS] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
};
_Static_assert(ATTN__LOCKS == 6, "a lock has no initializer");

void attn__lock(attn__lock_name which) {
    pthread_mutex_lock(&lock[which]);
}

void attn__unlock(attn__lock_name which) {
    pthread_mutex_unlock(&lock[which]);
}

void attn__lock_wait(attn__lock_name which, pthread_cond_t *changed) {
    pthread_cond_wait(changed, &lock[which]);
}

static void hold(void) {
    for (int i = 0; i < ATTN__LOCKS; i++) {
        pthread_mutex_lock(&lock[i]);
    }
}

static void release(void) {
    for (int i = ATTN__LOCKS; i-- > 0;) {
        pthread_mutex_unlock(&lock[i]);
    }
}

static void in_child(void) {
    attn__modules_in_child();
    release();
}

/* As the library is loaded, so before any of its locks is taken. */
__attribute__((constructor)) static void watch(void) {
    pthread_atfork(hold, release, in_child);
}
