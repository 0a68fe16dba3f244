"""The chips that kernels are written for, as lib/target.c names them; each is emulated, too."""

CHIPS = [
    "sm_80",
    "sm_90a",
    "gfx90a",
    "gfx942",
]
