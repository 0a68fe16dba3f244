"""The chips that kernels are written for, as lib/target.c names them; each is emulated, too."""

# Name, and what its bundle is called.
CHIPS = {
    "sm_80": "sm80",
    "sm_90a": "sm90",
    "gfx90a": "gfx90a",
    "gfx942": "gfx942",
}
