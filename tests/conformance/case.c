/* case.c: one point, from text to verdict; see suite.h. */
#include <string.h>

#include "suite.h"

void run_case(const suite *s, const point *p, outcome *out) {
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
