/* jit_process.c: programs that compile or disassemble, and the time that they may take.

   Who calls it: jit_cc.c, jit_debug.c; jit_hiprtc.c, whose child is no program, asks for the time
   alone. A compiler starts programs of its own, so each is the first of a group of processes, and
   what is late is ended with its group:

       parent                       group
       posix_spawn ---------------> cc -> cc1, as, ld
       waitpid, sleep, waitpid      both outputs to a file
       kill(-group) when its time is up */
#define _GNU_SOURCE
#include "jit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

int64_t attn__jit_milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int start(pid_t *child, char *const argv[], const char *log) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    const int failed = posix_spawnp(child, argv[0], &actions, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&actions);
    return !failed;
}

/* 1: the child has ended, *status is its own; 0 until then; -1: it has ended, and its status went
   elsewhere. */
static int ended(pid_t child, int *status) {
    const pid_t got = waitpid(child, status, WNOHANG);
    return got > 0 ? 1 : got < 0 && errno != EINTR ? -1 : 0;
}

int attn__spawn(char *const argv[], const char *log) {
    const int64_t end = attn__jit_milliseconds() + 1000 * attn__setting(ATTN__SET_SECONDS);
    struct timespec pause = {0, 500000};
    pid_t child;
    int status = 0, over;
    if (!start(&child, argv, log)) {
        return ATTN__NOT_STARTED;
    }
    while ((over = ended(child, &status)) == 0) {
        if (attn__jit_milliseconds() >= end) {
            kill(-child, SIGKILL);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
            }
            return ATTN__LATE;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec += pause.tv_nsec < 10000000 ? pause.tv_nsec / 4 : 0;
    }
    return over < 0 ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
