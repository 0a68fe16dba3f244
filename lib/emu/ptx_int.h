/* ptx_int.h: what the files of the model of PTX share.

   Who includes it: ptx.c (the table), ptx_mma.c (matrix products). */
#ifndef ATTN_EMU_PTX_INT_H
#define ATTN_EMU_PTX_INT_H

#include "emu_common.h"

#include "isa/ptx.h"

attn_emu_mma attn__ptx_mma_f16, attn__ptx_mma_bf16, attn__ptx_mma_tf32;

#endif
