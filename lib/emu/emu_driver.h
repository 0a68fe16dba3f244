/* emu_driver.h: the driver of emulated chips, and what it tells of a launch.

   Who includes it: device.c for the driver, gpu_make.c for the targets; tests for the counts. */
#ifndef ATTN_EMU_DRIVER_H
#define ATTN_EMU_DRIVER_H

#include "../gpu.h"
#include "emu.h"

extern const attn__driver attn__emu;
/* Of device "emu:CHIP": that of the real chip, but for who compiles. */
int attn__emu_target(const char *device, attn__target *target);
/* Of the launch that ended last on this chip. */
void attn__emu_last(attn__chip *chip, attn__emu_counts *counts);

#endif
