/* temporary.h: a folder for the time of a compile or of a load; see temporary.c.

   Who includes it: jit_cc.c, emu/emu_driver.c. */
#ifndef ATTN_TEMPORARY_H
#define ATTN_TEMPORARY_H

#include <stddef.h>

enum { ATTN__PATH = 4096, ATTN__PATH_IN = ATTN__PATH + 128 };

typedef struct attn__temporary {
    char path[ATTN__PATH]; /* absolute */
    int lock;
} attn__temporary;

int attn__temporary_new(attn__temporary *t);
void attn__temporary_remove(const attn__temporary *t);
/* `name` within it, which may have folders before it. */
void attn__temporary_path(const attn__temporary *t, const char *name, char path[ATTN__PATH_IN]);
int attn__temporary_write(const attn__temporary *t, const char *name, const void *bytes, size_t n);

#endif
