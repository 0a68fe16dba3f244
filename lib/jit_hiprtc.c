/* jit_hiprtc.c: kernel text -> code object for AMD's chips, by hipRTC, found at run time.

   Who calls it: jit.c, through the table attn__hiprtc. No GPU and no header of the vendor is
   needed. The library is what the environment variable ATTN_HIPRTC names, or else the first of:

       libhiprtc.so.7  libhiprtc.so.6  libhiprtc.so  in /opt/rocm/lib  libamdhip64.so.5

   Older ones end the process on a chip that they do not know, so the work is done by a child. It
   has one thread of its parent and may find a lock of that library taken for ever, so it is given
   $ATTN_COMPILE_SECONDS, otherwise 600, and it ends with its parent:

       parent                          child
       fork ------------------------> compiles
       reads <--- pipe: status, size, code or sentence --- writes, _exit
       kills it when its time is up */
#define _GNU_SOURCE
#include "jit_rtc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static attn__rtc rtc = {.name = "hipRTC"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const attn__rtc_entry entries[] = {
    {"hiprtcVersion", &rtc.version},
    {"hiprtcCreateProgram", &rtc.create},
    {"hiprtcDestroyProgram", &rtc.destroy},
    {"hiprtcCompileProgram", &rtc.compile},
    {"hiprtcGetProgramLogSize", &rtc.log_size},
    {"hiprtcGetProgramLog", &rtc.log},
    {"hiprtcGetCodeSize", &rtc.code_size},
    {"hiprtcGetCode", &rtc.code},
    {"hiprtcGetErrorString", &rtc.error},
    {NULL, NULL},
};
static const char *const options[] = {"-std=c++17", "-O3", "-ffp-contract=off", NULL};

static void find(void) {
    static const char *const names[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so",
                                        "/opt/rocm/lib/libhiprtc.so", "libamdhip64.so.5"};
    if (attn__rtc_named(&rtc, "ATTN_HIPRTC", entries)) {
        return;
    }
    for (int i = 0; i < 5; i++) {
        if (attn__rtc_load(&rtc, names[i], entries)) {
            return;
        }
    }
    snprintf(rtc.missing, sizeof rtc.missing,
             "no libhiprtc.so of ROCm 6.3 or newer was found; ATTN_HIPRTC may name one");
}

static int hiprtc_identity(const attn__target *target, char *text, size_t capacity) {
    pthread_once(&once, find);
    return attn__rtc_identity(&rtc, target, options, text, capacity);
}

/* -- The child --------------------------------------------------------------------------------- */

/* What comes before the bytes: of the code, or of the sentence of a failure. */
typedef struct answer {
    int status;
    uint64_t bytes;
} answer;

static int write_all(int to, const void *from, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t m = write(to, (const char *)from + at, n - at);
        if (m <= 0 && errno != EINTR) {
            return 0;
        }
        at += m > 0 ? (size_t)m : 0;
    }
    return 1;
}

/* 1, unless the other end is closed or `end` comes first. */
static int read_all(int from, void *to, size_t n, int64_t end) {
    for (size_t at = 0; at < n;) {
        struct pollfd p = {.fd = from, .events = POLLIN};
        const int64_t left = end - attn__jit_milliseconds();
        if (left <= 0) {
            return 0;
        } else if (poll(&p, 1, (int)left) <= 0) {
            continue;
        }
        const ssize_t m = read(from, (char *)to + at, n - at);
        if (m == 0 || (m < 0 && errno != EINTR)) {
            return 0;
        }
        at += m > 0 ? (size_t)m : 0;
    }
    return 1;
}

/* The process's own handlers and its terminal are no place for the end of a child. */
static void be_quiet(void) {
    static const int ends[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    const int nowhere = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 5; i++) {
        signal(ends[i], SIG_DFL);
    }
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
}

static void child(const attn__job *job, int to) {
    char arch[48];
    void *code = NULL;
    size_t bytes = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_quiet();
    snprintf(arch, sizeof arch, "--offload-arch=%.20s", job->target->name);
    const int status = attn__rtc_compile(&rtc, job, arch, options, &code, &bytes);
    const char *const text = attn_error();
    const answer a = {status, status < 0 ? strlen(text) : bytes};
    const int written =
        write_all(to, &a, sizeof a) && write_all(to, status < 0 ? text : code, (size_t)a.bytes);
    _exit(written ? 0 : 1);
}

/* NULL: the child ended before its time, or its time is up. */
static char *receive(int from, answer *a, int64_t end) {
    if (!read_all(from, a, sizeof *a, end) || a->bytes > (uint64_t)1 << 32) {
        return NULL;
    }
    char *const bytes = malloc((size_t)a->bytes + 1);
    if (bytes && !read_all(from, bytes, (size_t)a->bytes, end)) {
        free(bytes);
        return NULL;
    }
    if (bytes) {
        bytes[a->bytes] = 0;
    }
    return bytes;
}

static int no_answer(const attn__job *job, int64_t late) {
    if (late) {
        return attn__fail(ATTN_DRIVER, "device",
                          "hipRTC %d.%d has not compiled %s for %s in %lld seconds; "
                          "ATTN_COMPILE_SECONDS may give it more",
                          rtc.major, rtc.minor, job->entry, job->target->name, (long long)late);
    }
    return attn__fail(ATTN_DRIVER, "device",
                      "hipRTC %d.%d ended while it compiled %s for %s; "
                      "it may be too old for that chip",
                      rtc.major, rtc.minor, job->entry, job->target->name);
}

static int hiprtc_compile(const attn__job *job, void **code, size_t *bytes) {
    int ends[2], how = 0;
    *code = NULL;
    pthread_once(&once, find);
    ATTN_TRY(attn__rtc_here(&rtc));
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return attn__fail(ATTN_DRIVER, "device", "hipRTC: no pipe: %s", strerror(errno));
    }
    const int64_t seconds = attn__setting(ATTN__SET_SECONDS);
    const int64_t end = attn__jit_milliseconds() + 1000 * seconds;
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(job, ends[1]);
    }
    close(ends[1]);
    answer a = {0, 0};
    char *const got = pid < 0 ? NULL : receive(ends[0], &a, end);
    close(ends[0]);
    if (pid < 0) {
        return attn__fail(ATTN_DRIVER, "device", "hipRTC: no child: %s", strerror(errno));
    }
    const int late = !got && attn__jit_milliseconds() >= end;
    if (late) {
        kill(pid, SIGKILL);
    }
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (!got) {
        return no_answer(job, late ? seconds : 0);
    }
    if (a.status < 0) {
        attn__fail(a.status, "variant", "%s", got);
        free(got);
        return a.status;
    }
    *code = got;
    *bytes = (size_t)a.bytes;
    return ATTN_OK;
}

const attn__compiler attn__hiprtc = {"hiprtc", hiprtc_identity, hiprtc_compile};
