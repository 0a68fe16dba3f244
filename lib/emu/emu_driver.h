/* emu_driver.h: the driver of emulated chips, and what it tells of a launch.

   Who includes it: device.c for the driver; tests for the counts. */
#ifndef ATTN_EMU_DRIVER_H
#define ATTN_EMU_DRIVER_H

#include "../gpu.h"
#include "emu.h"

extern const attn__driver attn__emu;
/* Of the launch that ended last on this chip. */
void attn__emu_last(attn__chip *chip, attn__emu_counts *counts);

#endif
