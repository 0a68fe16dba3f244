/* setting.c: environment variables that are a switch or a number: a value that they do not have is
   refused.

   Who calls it: plan.c, so that no plan is made under a wrong one; problem.c, for a run. What a
   setting is, is asked by problem.c, gpu_fwd.c, jit_process.c and jit_cache.c. Other variables are
   names: docs/environment.md has all. */
#include "attn_int.h"

#include <stdlib.h>
#include <string.h>

static const struct setting {
    const char *name, *on, *off; /* NULL: a number */
    int64_t least, most, otherwise;
} settings[ATTN__SETTINGS] = {
    [ATTN__SET_CHECK] = {"ATTN_CHECK", "1", "0", 0, 0, 0},
    [ATTN__SET_MULTISTAGE] = {"ATTN_SCHEDULE", "multistage", "producer", 0, 0, 0},
    [ATTN__SET_SECONDS] = {"ATTN_COMPILE_SECONDS", NULL, NULL, 1, 999999, 600},
    [ATTN__SET_CACHE_MIB] = {"ATTN_CACHE_MIB", NULL, NULL, 0, INT32_MAX, 1024},
};

/* Its value, or the one that it has where it is not set; 0: it is set to something else. */
static int read_setting(const struct setting *s, int64_t *value) {
    const char *const text = getenv(s->name);
    char *end;
    *value = s->otherwise;
    if (!text || !*text) {
        return 1;
    }
    if (s->on) {
        *value = strcmp(text, s->on) == 0;
        return *value || strcmp(text, s->off) == 0;
    }
    const long long n = strtoll(text, &end, 10);
    const int is_good = *text >= '0' && *text <= '9' && !*end && n >= s->least && n <= s->most;
    *value = is_good ? n : s->otherwise;
    return is_good;
}

int64_t attn__setting(enum attn__setting which) {
    int64_t value;
    read_setting(&settings[which], &value);
    return value;
}

int attn__setting_check(enum attn__setting which) {
    const struct setting *const s = &settings[which];
    int64_t value;
    if (read_setting(s, &value)) {
        return ATTN_OK;
    }
    return s->on ? attn__fail(ATTN_INVALID, s->name,
                              "the environment variable %s is \"%.64s\"; %s and %s are allowed",
                              s->name, getenv(s->name), s->on, s->off)
                 : attn__fail(ATTN_INVALID, s->name,
                              "the environment variable %s is \"%.64s\"; a whole number from "
                              "%lld to %lld is wanted",
                              s->name, getenv(s->name), (long long)s->least, (long long)s->most);
}

int attn__settings_check(void) {
    for (int i = 0; i < ATTN__SETTINGS; i++) {
        ATTN_TRY(attn__setting_check((enum attn__setting)i));
    }
    return ATTN_OK;
}
