/* gpu_native_event.c: marks in streams; see gpu_native.h.

   Who calls it: blocks.c, through a driver's table. */
#include "gpu_native.h"

enum { WITHOUT_TIME = 2, NOT_READY = 600 }; /* both makers' numbers */

int attn__native_event_new(attn__chip *chip, void **event) {
    *event = NULL;
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->event_new(event, WITHOUT_TIME),
                              "making an event");
}

void attn__native_event_free(attn__chip *chip, void *event) {
    if (attn__native_enter(chip) == ATTN_OK) {
        attn__native_leave(chip, chip->vendor->event_free(event), "releasing an event");
    }
}

int attn__native_event_record(attn__chip *chip, void *event, void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->event_record(event, stream),
                              "recording an event");
}

int attn__native_event_done(attn__chip *chip, void *event, int *done) {
    ATTN_TRY(attn__native_enter(chip));
    const int code = chip->vendor->event_query(event);
    *done = code == 0;
    return attn__native_leave(chip, code == NOT_READY ? 0 : code, "asking for an event");
}

int attn__native_event_await(attn__chip *chip, void *event, void *stream) {
    ATTN_TRY(attn__native_enter(chip));
    return attn__native_leave(chip, chip->vendor->event_await(stream, event, 0),
                              "making a stream wait for an event");
}
