/* jit_rtc.h: a compiler that is a library: what NVRTC and hipRTC have in common.

   Who includes it: jit_nvrtc.c and jit_hiprtc.c, which find the library; jit_rtc.c asks it. */
#ifndef ATTN_JIT_RTC_H
#define ATTN_JIT_RTC_H

#include "jit.h"

enum { ATTN__STAMP = 96, ATTN__RTC_OPTIONS = 12 };
typedef struct attn__rtc {
    const char *name; /* "NVRTC" */
    int (*version)(int *, int *);
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*destroy)(void **);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*code_size)(void *, size_t *);
    int (*code)(void *, char *);
    const char *(*error)(int);
    int major, minor;
    char stamp[ATTN__STAMP]; /* of its file */
    char missing[256];       /* "" where it was found */
} attn__rtc;

/* A library's entry and the function pointer for it; a list ends with a NULL. */
typedef struct attn__rtc_entry {
    const char *symbol;
    void *at;
} attn__rtc_entry;
/* 1: found. 0: `missing` says why not. */
int attn__rtc_load(attn__rtc *rtc, const char *path, const attn__rtc_entry *entry);
/* 1: an environment variable names the library; `missing` is as above. */
int attn__rtc_named(attn__rtc *rtc, const char *variable, const attn__rtc_entry *entry);
/* 1: the process has it, in whatever folder it was found, and would get no other one. */
int attn__rtc_is_loaded(const char *path);
/* Notes in the cache which version the opened library has and where it lies, so that a process
   whose kernels are all cached need not open it. `about` says by what it was looked for. */
void attn__rtc_remember(const attn__rtc *rtc, const char *about);
/* 1: such a note has been found, and the library lies there as it did; rtc's version is known. */
int attn__rtc_recall(attn__rtc *rtc, const char *about);
/* "mtime size " of a file, of its last target; "- " where there is none. */
void attn__rtc_stamp(const char *path, char *text, size_t capacity);
/* Refuses where it is missing. */
int attn__rtc_here(const attn__rtc *rtc);
/* "NVRTC 13.0 STAMP sm_90a" and the options: an update may keep the version. */
int attn__rtc_identity(const attn__rtc *rtc, const attn__target *target, const char *const *options,
                       char *text, size_t capacity);
/* options ends with NULL, up to ATTN__RTC_OPTIONS of them; arch goes before them. */
int attn__rtc_compile(const attn__rtc *rtc, const attn__job *job, const char *arch,
                      const char *const *options, void **code, size_t *bytes);

#endif
