/* vm_base.c: the vector machine's loops for any processor. */
#define VM_TABLE attn__lanes_base
#include "vm_lanes.h"
