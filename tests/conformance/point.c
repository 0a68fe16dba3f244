/* point.c: the text of a case; see point.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "point.h"

enum kind { KIND_PICK, KIND_INT, KIND_REAL, KIND_LIST, KIND_TEXT };

#define X(name, ...) static const char *const name##_names[] = {__VA_ARGS__, NULL};
POINT_PICKS(X)
#undef X

typedef struct field {
    const char *name, *about;
    enum kind kind;
    size_t at;
    const char *const *names; /* of a pick */
    double start;
} field;

static const field fields[] = {
#define PICK(name, picks, about) {#name, about, KIND_PICK, offsetof(point, name), picks##_names, 0},
#define INT(name, start, about)  {#name, about, KIND_INT, offsetof(point, name), NULL, start},
#define REAL(name, start, about) {#name, about, KIND_REAL, offsetof(point, name), NULL, start},
#define LIST(name, about)        {#name, about, KIND_LIST, offsetof(point, name), NULL, 0},
#define TEXT(name, about)        {#name, about, KIND_TEXT, offsetof(point, name), NULL, 0},
    POINT_FIELDS(PICK, INT, REAL, LIST, TEXT)
#undef PICK
#undef INT
#undef REAL
#undef LIST
#undef TEXT
};
enum { FIELDS = sizeof fields / sizeof *fields };

static void *member(const point *p, const field *f) {
    return (char *)p + f->at;
}

void point_start(point *p) {
    memset(p, 0, sizeof *p);
    for (int i = 0; i < FIELDS; i++) {
        if (fields[i].kind == KIND_INT) {
            *(int64_t *)member(p, &fields[i]) = (int64_t)fields[i].start;
        } else if (fields[i].kind == KIND_REAL) {
            *(double *)member(p, &fields[i]) = fields[i].start;
        }
    }
}

double point_number(const point_list *list, int64_t j, double otherwise) {
    return list->n ? list->x[j % list->n] : otherwise;
}

/* The value at `from` up to a blank, or between quotes; returns what follows, NULL if there is no
   closing quote or no room. */
static const char *take_value(const char *from, char value[POINT_TEXT]) {
    const char end = *from == '"' ? '"' : ' ';
    size_t n = 0;
    from += end == '"';
    while (from[n] && from[n] != end) {
        n++;
    }
    if (n >= POINT_TEXT || (end == '"' && !from[n])) {
        return NULL;
    }
    memcpy(value, from, n);
    value[n] = 0;
    return from + n + (end == '"');
}

static int set(point *p, const field *f, const char *value) {
    char *end = (char *)value;
    if (f->kind == KIND_PICK) {
        for (int i = 0; f->names[i]; i++) {
            if (strcmp(f->names[i], value) == 0) {
                *(int64_t *)member(p, f) = i;
                return 0;
            }
        }
        return -1;
    }
    if (f->kind == KIND_TEXT) {
        snprintf(member(p, f), POINT_TEXT, "%s", value);
        return 0;
    }
    if (f->kind == KIND_LIST) {
        point_list *const list = member(p, f);
        list->n = 0;
        while (*end && list->n < POINT_LIST) {
            value = end;
            list->x[list->n++] = strtod(value, &end);
            if (end == value || (*end && *end++ != ',')) {
                return -1;
            }
        }
        return *end ? -1 : 0;
    }
    if (f->kind == KIND_INT) {
        *(int64_t *)member(p, f) = strtoll(value, &end, 10);
    } else {
        *(double *)member(p, f) = strtod(value, &end);
    }
    return end == value || *end ? -1 : 0;
}

int point_parse(point *p, const char *line, char why[200]) {
    for (;;) {
        while (*line == ' ') {
            line++;
        }
        if (!*line) {
            return 0;
        }
        const size_t n = strcspn(line, "=");
        const field *f = NULL;
        for (int i = 0; i < FIELDS && !f; i++) {
            f = strlen(fields[i].name) == n && memcmp(fields[i].name, line, n) == 0 ? &fields[i]
                                                                                    : NULL;
        }
        if (!f || !line[n]) {
            snprintf(why, 200, "there is no field \"%.40s\"", line);
            return -1;
        }
        char value[POINT_TEXT];
        const char *const rest = take_value(line + n + 1, value);
        if (!rest || set(p, f, value) < 0) {
            snprintf(why, 200, "field %s does not take \"%.60s\"", f->name, line + n + 1);
            return -1;
        }
        line = rest;
    }
}

/* The shortest of %.6g and %.17g that reads back the same. */
static int number_text(char *to, size_t room, double x) {
    const int n = snprintf(to, room, "%.6g", x);
    return strtod(to, NULL) == x || isnan(x) ? n : snprintf(to, room, "%.17g", x);
}

static int at_start(const point *p, const field *f) {
    switch (f->kind) {
    case KIND_PICK:
    case KIND_INT: return *(int64_t *)member(p, f) == (int64_t)f->start;
    case KIND_REAL: {
        const double x = *(double *)member(p, f);
        return x == f->start || (isnan(x) && isnan(f->start));
    }
    case KIND_LIST: return ((const point_list *)member(p, f))->n == 0;
    default: return *(const char *)member(p, f) == 0;
    }
}

void point_print(const point *p, char line[POINT_LINE]) {
    size_t n = 0;
    line[0] = 0;
    for (int i = 0; i < FIELDS && n + POINT_TEXT < POINT_LINE; i++) {
        const field *const f = &fields[i];
        if (at_start(p, f)) {
            continue;
        }
        n += (size_t)snprintf(line + n, POINT_LINE - n, "%s%s=", n ? " " : "", f->name);
        if (f->kind == KIND_PICK) {
            n += (size_t)snprintf(line + n, POINT_LINE - n, "%s",
                                  f->names[*(int64_t *)member(p, f)]);
        } else if (f->kind == KIND_INT) {
            n += (size_t)snprintf(line + n, POINT_LINE - n, "%lld",
                                  (long long)*(int64_t *)member(p, f));
        } else if (f->kind == KIND_REAL) {
            n += (size_t)number_text(line + n, POINT_LINE - n, *(double *)member(p, f));
        } else if (f->kind == KIND_LIST) {
            const point_list *const list = member(p, f);
            for (int j = 0; j < list->n; j++) {
                n += (size_t)snprintf(line + n, POINT_LINE - n, "%s", j ? "," : "");
                n += (size_t)number_text(line + n, POINT_LINE - n, list->x[j]);
            }
        } else {
            n += (size_t)snprintf(line + n, POINT_LINE - n, "\"%s\"", (char *)member(p, f));
        }
    }
}

int point_describe(int i, const char **name, char kind[200], const char **about) {
    static const char *const kinds[] = {"", "whole number", "number", "list", "\"text\""};
    if (i < 0 || i >= FIELDS) {
        return 0;
    }
    const field *const f = &fields[i];
    *name = f->name;
    *about = f->about;
    snprintf(kind, 200, "%s", kinds[f->kind]);
    for (int j = 0; f->names && f->names[j]; j++) {
        const size_t n = strlen(kind);
        snprintf(kind + n, 200 - n, "%s%s", j ? "|" : "", f->names[j]);
    }
    return 1;
}
