/* case.c: one point, from text to verdict; see suite.h. */
#include <string.h>

#include "suite.h"

static void run_once(const suite *s, const point *p, outcome *out) {
    memset(out, 0, sizeof *out);
    if (p->check == CHECK_REFUSE) {
        check_refusal(s, p, out);
    } else {
        setup x;
        if (setup_new(&x, p, s->ref, s->dev, out->why) == 0) {
            check_property(&x, out, s);
        }
        setup_free(&x);
    }
    out->ok = out->why[0] == 0;
}

/* 1 and the argument, if all that is wrong is that the device cannot do it. The host's processor
   must do everything. */
static int is_refused(const suite *s, const outcome *out, char arg[48]) {
    const size_t n = strlen(UNSUPPORTED);
    const int host = s->info.kind == 1 && !s->info.emulated;
    if (out->ok || host || strncmp(out->why, UNSUPPORTED, n) != 0) {
        return 0;
    }
    const size_t length = strcspn(out->why + n, ":");
    memset(arg, 0, 48);
    memcpy(arg, out->why + n, length < 47 ? length : 47);
    return 1;
}

void run_case(const suite *s, const point *p, outcome *out) {
    char arg[48], again[48];
    run_once(s, p, out);
    if (!is_refused(s, out, arg)) {
        return;
    }
    if (p->dir == DIR_BWD) {
        point forward = *p;
        forward.dir = DIR_FWD;
        run_once(s, &forward, out);
        if (is_refused(s, out, again)) {
            out->ok = 0;
        } else if (!out->ok) {
            return; /* the forward failed */
        }
    }
    memcpy(out->refused, arg, sizeof out->refused);
}
