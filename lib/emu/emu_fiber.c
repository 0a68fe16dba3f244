/* emu_fiber.c: changing from one stack to another.

   Who calls it: emu_warp.c. On x86-64 and aarch64 by hand, since it is what the emulator does most:
   the registers that a callee keeps are pushed, the stack pointer stored and replaced, and popped.
   Elsewhere by ucontext, with the context on the stack that is left. */
#define _XOPEN_SOURCE 700
#include "emu_core.h"

#if defined(__x86_64__) && defined(__ELF__) && !defined(__ILP32__)

__asm__(".text\n"
        ".globl attn__emu_switch\n"
        ".hidden attn__emu_switch\n"
        ".type attn__emu_switch,@function\n"
        "attn__emu_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size attn__emu_switch, . - attn__emu_switch\n");

/* As if `entry` had been called (the stack 8 off 16) and had switched away at once. */
void *attn__emu_fiber(void *top, void (*entry)(void)) {
    void **sp = top;
    *--sp = NULL; /* where `entry` would return to */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) {
        *--sp = NULL;
    }
    return sp;
}

#elif defined(__aarch64__) && defined(__ELF__)

__asm__(".text\n"
        ".globl attn__emu_switch\n"
        ".hidden attn__emu_switch\n"
        ".type attn__emu_switch,%function\n"
        "attn__emu_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size attn__emu_switch, . - attn__emu_switch\n");

void *attn__emu_fiber(void *top, void (*entry)(void)) {
    void **const sp = (void **)top - 20;
    for (int i = 0; i < 20; i++) {
        sp[i] = NULL;
    }
    sp[11] = (void *)entry; /* x30 */
    return sp;
}

#else

#include <ucontext.h>

void *attn__emu_fiber(void *top, void (*entry)(void)) {
    ucontext_t *const c = (ucontext_t *)(((uintptr_t)top - sizeof *c) & ~(uintptr_t)63);
    char *const bottom = (char *)((uintptr_t)c & ~(uintptr_t)(EMU_STACK - 1));
    getcontext(c);
    c->uc_link = NULL;
    c->uc_stack.ss_sp = bottom;
    c->uc_stack.ss_size = (size_t)((char *)c - bottom);
    makecontext(c, entry, 0);
    return c;
}

void attn__emu_switch(void **from, void *to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}

#endif
