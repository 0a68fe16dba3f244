/* ptx_wgmma.c: the model of wgmma, PTX ISA 9.0, 9.7.15: products on their way, and the registers
   that are theirs meanwhile.

   Who calls it: ptx.c's table. The four warps of a group issue the same products, each at its time:

       issue     the warp's registers of d are taken: poison from now on; those of a are noted
       .......   the last of the four has issued it: it may read shared memory now (async=early) ..
       wait      .. or only now (late), when the first warp waits for it; a warp gets its registers
                 back when it waits itself. They, and those of a, must be what they were.

   Registers that were used otherwise need a wgmma_fence before they take part: those of d since the
   last wait that gave them back, and both may not change behind it. This is seen of registers that
   have taken part before, by a sum of their bits at the fence. */
#include "ptx_wgmma.h"

#include <stdlib.h>
#include <string.h>

/* Finite, so that no maximum or careful loop passes over it as it does over NaN. */
static const uint32_t poison = 0x47cbcbcbu;

/* The kernel's own stack, which under AddressSanitizer may be out of scope by now. */
#define KERNEL_STACK __attribute__((no_sanitize("address")))

static ptx_group *group_of(int warp) {
    ptx_state *const s = attn__ptx_state();
    ptx_group **const g = &s->group[warp / 4];
    if (attn__emu_threads() < (warp / 4 + 1) * PTX_GROUP) {
        attn__emu_fault(warp * 32, "multiplies in a group that has no four warps");
    }
    if (!*g && !(*g = calloc(1, sizeof **g))) {
        attn__emu_fault(warp * 32, "finds no memory for its products");
    }
    return *g;
}
static int warp_here(void) {
    return attn__emu_warp_first() / 32;
}

/* -- Registers that take part ------------------------------------------------------------------ */

KERNEL_STACK static uint32_t sum_of_bits(const known *k) {
    uint32_t sum = 0;
    for (int l = 0; l < 32; l++) {
        const volatile uint32_t *const word = k->at[l];
        for (int i = 0; i < k->words; i++) {
            sum += (word[i] ^ (uint32_t)(l << 8 | i)) * (uint32_t)(2 * (l * 64 + i) + 0x9e3779b1);
        }
    }
    return sum;
}

static known *known_at(ptx_group *g, int w, const void *const at[32], int words) {
    for (int i = 0; i < g->n_known[w]; i++) {
        known *const k = &g->known[w][i];
        if (k->at[0] == at[0] && k->words == words) {
            return k;
        }
    }
    known *const k = &g->known[w][g->n_known[w] % KNOWN];
    g->n_known[w] += g->n_known[w] < KNOWN;
    memset(k, 0, sizeof *k);
    memcpy(k->at, at, sizeof k->at);
    k->words = words;
    return k;
}

/* Before a product of warp w uses them; `used`: their bits matter. */
static known *check_fenced(ptx_group *g, int w, const void *const at[32], int words, int used,
                           const char *what) {
    known *const k = known_at(g, w, at, words);
    if (!g->fenced[w] || k->stale) {
        attn__emu_fault(attn__emu_warp_first(),
                        "multiplies with registers %s that are in use since the last wgmma_fence",
                        what);
    }
    if (used && k->has_sum && k->sum != sum_of_bits(k)) {
        attn__emu_fault(attn__emu_warp_first(),
                        "multiplies with registers %s that changed behind wgmma_fence", what);
    }
    return k;
}

static void fence_all(void *const *lane) {
    const int warp = warp_here(), w = warp % 4;
    ptx_group *const g = group_of(warp);
    (void)lane;
    for (int i = 0; i < g->n_known[w]; i++) {
        known *const k = &g->known[w][i];
        if (!k->flying) {
            k->sum = sum_of_bits(k);
            k->has_sum = 1;
            k->stale = 0;
        }
    }
    g->fenced[w] = 1;
}
void attn__ptx_wgmma_fence(void) {
    attn__emu_meet("wgmma_fence", fence_all, NULL);
}

/* -- d ----------------------------------------------------------------------------------------- */

/* Lane l's element i of d: x and y in turn, two each. */
static uint32_t *element(const sum *s, int l, int i) {
    float *const half = i & 2 ? s->y[l] : s->x[l];
    return (uint32_t *)(void *)&half[i / 4 * 2 + (i & 1)];
}
static uint32_t *element_of(sum *s, int l, int i) {
    const int row = l / 32 * 16 + l % 32 / 4 + (i & 2) * 4;
    return (uint32_t *)(void *)&s->d[row][i / 4 * 8 + l % 4 * 2 + (i & 1)];
}

static void both_halves(ptx_group *g, int w, const sum *s, int used, int flying, int stale) {
    const void *at[2][32];
    for (int i = 0; i < 32; i++) {
        at[0][i] = s->x[w * 32 + i];
        at[1][i] = s->y[w * 32 + i];
    }
    for (int i = 0; i < 2; i++) {
        known *const k = flying ? check_fenced(g, w, at[i], s->n / 4, used, "d")
                                : known_at(g, w, at[i], s->n / 4);
        k->flying = flying;
        k->stale = stale;
    }
}

KERNEL_STACK static void take(ptx_group *g, int w, sum *s, void *const *lane) {
    const attn_emu_wgmma *const first = lane[0];
    for (int i = 0; i < 32; i++) {
        const attn_emu_wgmma *const own = lane[i];
        s->x[w * 32 + i] = own->x;
        s->y[w * 32 + i] = own->y;
    }
    both_halves(g, w, s, first->add, 1, 0);
    for (int l = w * 32; l < w * 32 + 32; l++) {
        for (int i = 0; i < s->n / 2; i++) {
            *element_of(s, l, i) = *element(s, l, i);
            *element(s, l, i) = poison;
        }
    }
    s->taken |= 1 << w;
}

KERNEL_STACK static void give(ptx_group *g, int w, sum *s) {
    for (int l = w * 32; l < w * 32 + 32; l++) {
        for (int i = 0; i < s->n / 2; i++) {
            if (*element(s, l, i) != poison) {
                attn__emu_fault(attn__emu_warp_first() + l % 32,
                                "changed d of a product before it waited for it");
            }
            *element(s, l, i) = *element_of(s, l, i);
        }
    }
    both_halves(g, w, s, 0, 0, 1);
    s->given |= 1 << w;
    if (s->given == 15) {
        s->taken = s->given = 0;
    }
}

static int holds(const sum *s, int w, void *const *lane) {
    int same = 0;
    if (!(s->taken >> w & 1) || s->given >> w & 1) {
        return 0;
    }
    for (int i = 0; i < 32; i++) {
        const attn_emu_wgmma *const own = lane[i];
        same += s->x[w * 32 + i] == own->x && s->y[w * 32 + i] == own->y;
    }
    if (same != 0 && (same != 32 || s->n != ((const attn_emu_wgmma *)lane[0])->n)) {
        attn__emu_fault(attn__emu_warp_first(), "multiplies to a d that in part is another's");
    }
    return same;
}

/* d of product p: on its way already, or taken now. */
static void take_d(ptx_group *g, int w, product *p, void *const *lane) {
    sum *found = NULL, *room = NULL;
    for (int i = 0; i < SUMS; i++) {
        if (holds(&g->sum[i], w, lane)) {
            found = &g->sum[i];
        } else if (!g->sum[i].taken) {
            room = &g->sum[i];
        }
    }
    if (p->issued == 0) {
        p->sum = found ? found : room;
        if (!p->sum) {
            attn__emu_fault(attn__emu_warp_first(), "has products to %d d on their way", SUMS);
        }
        p->sum->n = p->what.n;
    } else if (found ? found != p->sum : p->sum->taken >> w & 1) {
        attn__emu_fault(attn__emu_warp_first(), "multiplies to another d than its group");
    }
    if (!found) {
        take(g, w, p->sum, lane);
    }
    p->sum->last[w] = p->number;
}

/* -- a in registers ---------------------------------------------------------------------------- */

static void note_a(ptx_group *g, int w, product *p, void *const *lane) {
    const void *at[32];
    for (int i = 0; i < 32; i++) {
        at[i] = ((const attn_emu_wgmma *)lane[i])->registers;
    }
    check_fenced(g, w, at, 4, 1, "a");
    for (int i = 0; i < 32; i++) {
        p->from[w * 32 + i] = at[i];
        memcpy(p->a[w * 32 + i], at[i], sizeof p->a[0]);
    }
}

KERNEL_STACK static void check_a(const product *p, int w) {
    for (int l = w * 32; p->what.registers && l < w * 32 + 32; l++) {
        const volatile uint32_t *const now = p->from[l];
        for (int i = 0; i < 4; i++) {
            if (now[i] != p->a[l][i]) {
                attn__emu_fault(attn__emu_warp_first() + l % 32,
                                "changed a of a product before it waited for it");
            }
        }
    }
}

/* -- Issue ------------------------------------------------------------------------------------- */

static int same(const attn_emu_wgmma *a, const attn_emu_wgmma *b) {
    return a->n == b->n && a->bf16 == b->bf16 && a->add == b->add && a->across == b->across &&
           a->a_across == b->a_across && !a->registers == !b->registers && a->a == b->a &&
           a->b == b->b;
}

static product *next_of(ptx_group *g, int w, const attn_emu_wgmma *first) {
    product *const p = &g->product[g->issued[w] % FLYING];
    if (g->issued[w] == g->n) {
        for (int i = 0; i < 4; i++) {
            if (g->n - g->waited[i] == FLYING) {
                attn__emu_fault(attn__emu_warp_first(), "has %d products on their way", FLYING);
            }
        }
        p->what = *first;
        p->number = g->n++;
        p->issued = 0;
        p->seen = *attn__emu_clock_of(warp_here());
    } else if (!same(&p->what, first)) {
        attn__emu_fault(attn__emu_warp_first(), "multiplies otherwise than its group");
    }
    return p;
}

/* All four warps have issued it. */
static void complete(ptx_group *g, int group, product *p) {
    const int thread = group * PTX_GROUP;
    const char *fault = NULL;
    if (!p->what.registers) {
        fault = attn__ptx_chunks(p->at_a, p->what.a, 64, p->what.a_across);
    }
    fault = fault ? fault : attn__ptx_chunks(p->at_b, p->what.b, p->what.n, p->what.across);
    if (fault) {
        attn__emu_fault(thread, "multiplies by a descriptor of which %s", fault);
    }
    for (int i = 0; !p->what.registers && i < 128; i++) {
        attn__emu_will_read(group, (uint32_t)p->number + 1, thread, p->at_a[i]);
    }
    for (int i = 0; i < 2 * p->what.n; i++) {
        attn__emu_will_read(group, (uint32_t)p->number + 1, thread, p->at_b[i]);
    }
    attn__emu_wake(&g->queue);
    if (attn__emu_early()) {
        attn__ptx_run_to(g, group, p->number + 1);
    }
}

static void issue(void *const *lane) {
    const attn_emu_wgmma *const first = lane[0];
    const int warp = warp_here(), w = warp % 4;
    ptx_group *const g = group_of(warp);
    for (int i = 1; i < 32; i++) {
        if (!same(lane[i], first)) {
            attn__emu_fault(warp * 32 + i, "multiplies otherwise than lane 0");
        }
    }
    product *const p = next_of(g, w, first);
    const attn__emu_clock *const clock = attn__emu_clock_of(warp);
    for (int i = 0; i < EMU_AGENTS; i++) {
        p->seen.at[i] = p->seen.at[i] < clock->at[i] ? p->seen.at[i] : clock->at[i];
    }
    take_d(g, w, p, lane);
    if (first->registers) {
        note_a(g, w, p, lane);
    }
    p->set[w] = g->sets[w];
    p->issued |= 1 << w;
    g->issued[w]++;
    if (p->issued == 15) {
        complete(g, warp / 4, p);
    }
}
void attn__ptx_wgmma(const attn_emu_wgmma *what) {
    attn__emu_meet("wgmma", issue, (void *)(uintptr_t)what);
}

static void commit_all(void *const *lane) {
    (void)lane;
    group_of(warp_here())->sets[warp_here() % 4]++;
}
void attn__ptx_wgmma_commit(void) {
    attn__emu_meet("wgmma_commit", commit_all, NULL);
}

/* -- Wait -------------------------------------------------------------------------------------- */

typedef struct waiting {
    ptx_group *g;
    int sets, need; /* products that must have ended */
} waiting;

static void need_of(void *const *lane) {
    const int warp = warp_here(), w = warp % 4;
    ptx_group *const g = group_of(warp);
    const uint32_t n = (uint32_t)((const waiting *)lane[0])->sets;
    int need = g->waited[w];
    while (need < g->issued[w] && g->product[need % FLYING].set[w] + n < g->sets[w]) {
        need++;
    }
    for (int i = 0; i < 32; i++) {
        ((waiting *)lane[i])->g = g;
        ((waiting *)lane[i])->need = need;
    }
}

static void give_all(void *const *lane) {
    const waiting *const first = lane[0];
    const int warp = warp_here(), w = warp % 4;
    ptx_group *const g = first->g;
    attn__ptx_run_to(g, warp / 4, first->need);
    for (int i = g->waited[w]; i < first->need; i++) {
        check_a(&g->product[i % FLYING], w);
    }
    for (int i = 0; i < SUMS; i++) {
        sum *const s = &g->sum[i];
        if (s->taken >> w & 1 && !(s->given >> w & 1) && s->last[w] < first->need) {
            give(g, w, s);
        }
    }
    g->waited[w] = first->need;
    attn__emu_clock_of(warp)->at[EMU_MATRICES + warp] = (uint32_t)first->need;
}

static int issued_by_all(const ptx_group *g) {
    int least = g->issued[0];
    for (int i = 1; i < 4; i++) {
        least = g->issued[i] < least ? g->issued[i] : least;
    }
    return least;
}

void attn__ptx_wgmma_wait(int n) {
    waiting mine = {.sets = n};
    attn__emu_meet("wgmma_wait", need_of, &mine);
    while (issued_by_all(mine.g) < mine.need) {
        attn__emu_pause(&mine.g->queue, "wgmma_wait, for warps of its group");
    }
    attn__emu_meet("wgmma_wait", give_all, &mine);
}

/* -- A block ----------------------------------------------------------------------------------- */

void attn__ptx_wgmma_begin(ptx_state *s) {
    for (int i = 0; i < PTX_GROUPS; i++) {
        ptx_group *const g = s->group[i];
        if (g) {
            memset(g, 0, offsetof(ptx_group, product));
            for (int k = 0; k < SUMS; k++) {
                g->sum[k].taken = g->sum[k].given = 0;
            }
        }
    }
}

void attn__ptx_wgmma_end(const ptx_state *s) {
    for (int i = 0; i < PTX_GROUPS; i++) {
        const ptx_group *const g = s->group[i];
        for (int w = 0; g && w < 4; w++) {
            if (g->waited[w] < g->n) {
                attn__emu_fault((i * 4 + w) * 32, "ends after %d products of its group's %d",
                                g->waited[w], g->n);
            }
        }
    }
}

void attn__ptx_wgmma_free(ptx_group *group) {
    free(group);
}
