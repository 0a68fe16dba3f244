/* emu_shared.c: shared memory of a block: the bytes, their shadow, bank conflicts.

   Who calls it: the models. Per 4 bytes the shadow holds who wrote last and who read last, as a tag
   act << 8 | agent (emu_order.c):

       read:   the last write did not happen before         -> race
       write:  the last write or a read since did not       -> race

   Where the tag is the warp's own, the lanes' tags say the same of lanes and warp_sync: but not of
   two writes, since lanes share the halves of a word; and what a meeting reads it reads for all. */
#include "emu_core.h"

#include <stdlib.h>
#include <string.h>

void attn__emu_shared_reset(emu_core *c) {
    const size_t n = (size_t)c->launch->shared, words = (n + 3) / 4;
    memset(c->data, 0xcb, n);
    memset(c->valid, 0, words);
    memset(c->shadow, 0, words * sizeof *c->shadow);
    attn__emu_order_reset(c);
}

/* -- Access ------------------------------------------------------------------------------------ */

void attn__emu_race(int thread, const char *what, uint32_t at, const char *other, uint32_t tag) {
    const uint32_t agent = tag & 255;
    if (agent == EMU_ALL) {
        attn__emu_fault(thread, "%s shared memory at %u, which other warps %s without a barrier",
                        what, at, other);
    }
    if (agent >= EMU_COPIES) {
        attn__emu_fault(thread, "%s shared memory at %u, which a copy %s, without a wait", what, at,
                        other);
    }
    attn__emu_fault(thread, "%s shared memory at %u, which warp %u %s without a barrier", what, at,
                    agent, other);
}

_Noreturn static void lane_race(emu_core *c, int thread, const char *what, uint32_t at,
                                const char *other, uint32_t tag) {
    const int lane = (int)(tag & EMU_SEVERAL_LANES);
    if (lane == EMU_SEVERAL_LANES) {
        attn__emu_fault(thread,
                        "%s shared memory at %u, which lanes of its warp %s without "
                        "warp_sync",
                        what, at, other);
    }
    attn__emu_fault(thread,
                    "%s shared memory at %u, which thread %d of its warp %s without "
                    "warp_sync",
                    what, at, (thread >> c->shift << c->shift) + lane, other);
}

/* The lane's tag; what a meeting does all lanes do. */
static uint32_t lane_tag(const emu_core *c, int thread) {
    const uint32_t lane = (uint32_t)thread & ((1u << c->shift) - 1);
    return c->warp[thread >> c->shift].syncs << 7 | (c->meeting ? EMU_SEVERAL_LANES : lane);
}
static int another_lane(uint32_t tag, uint32_t mine) {
    return tag != mine && (tag ^ mine) < 128;
}

/* Which of a word's bytes [at, at + bytes) are, as the low bits of `valid`. */
static unsigned bytes_mask(uint32_t at, uint32_t bytes) {
    return bytes >= 4 ? 15u : ((1u << bytes) - 1) << (at & 3);
}

static void note_read(emu_core *c, uint32_t word, uint32_t tag) {
    emu_shadow *const s = &c->shadow[word];
    if (emu_before(c, (int)(tag & 255), s->read)) {
        s->read = tag;
    } else if (c->ordered) {
        attn__emu_order_read(c, word, tag);
    } else {
        s->read = (tag & ~255u) | EMU_ALL;
    }
    s->read_lane = 0;
}

_Noreturn static void no_data(const emu_core *c, int thread, const char *what, uint32_t word) {
    const unsigned valid = c->valid[word];
    attn__emu_fault(thread, "%s shared memory at %u, %s", what, word * 4,
                    valid & EMU_PENDING    ? "where a copy is on its way"
                    : valid & EMU_LENT     ? "which a copy may still read"
                    : valid & EMU_RESERVED ? "where a barrier is"
                                           : "which nobody has written");
}

static void check_read(emu_core *c, int thread, uint32_t at, uint32_t bytes, uint32_t tag) {
    const unsigned mask = bytes_mask(at, bytes);
    const uint32_t mine = lane_tag(c, thread);
    for (uint32_t i = at / 4; i < (at + bytes + 3) / 4; i++) {
        emu_shadow *const s = &c->shadow[i];
        if ((c->valid[i] & mask) != mask) {
            no_data(c, thread, "reads", i);
        }
        if (!emu_before(c, (int)(tag & 255), s->write)) {
            attn__emu_race(thread, "reads", i * 4, "wrote", s->write);
        }
        if (s->write == tag && another_lane(s->write_lane, mine)) {
            lane_race(c, thread, "reads", i * 4, "wrote", s->write_lane);
        }
        if (s->read != tag) {
            note_read(c, i, tag);
        }
        if (!c->meeting && s->read_lane != mine) {
            s->read_lane = another_lane(s->read_lane, mine) ? mine | EMU_SEVERAL_LANES : mine;
        }
    }
}

static void check_write(emu_core *c, int thread, uint32_t at, uint32_t bytes, uint32_t tag) {
    const unsigned mask = bytes_mask(at, bytes);
    const uint32_t mine = lane_tag(c, thread);
    const int warp = (int)(tag & 255);
    for (uint32_t i = at / 4; i < (at + bytes + 3) / 4; i++) {
        emu_shadow *const s = &c->shadow[i];
        if (c->valid[i] & (EMU_PENDING | EMU_RESERVED | EMU_LENT)) {
            no_data(c, thread, "writes", i);
        }
        if (!emu_before(c, warp, s->write)) {
            attn__emu_race(thread, "writes", i * 4, "wrote", s->write);
        }
        if (c->ordered ? !attn__emu_order_unread(c, i, warp) : !emu_before(c, warp, s->read)) {
            attn__emu_race(thread, "writes", i * 4, "read", s->read);
        }
        if (c->ordered && !attn__emu_order_unmultiplied(c, i, warp)) {
            attn__emu_fault(thread, "writes shared memory at %u, where a product may still read",
                            i * 4);
        }
        if (s->read == tag && another_lane(s->read_lane, mine)) {
            lane_race(c, thread, "writes", i * 4, "read", s->read_lane);
        }
        s->write = tag;
        s->write_lane = mine;
        c->valid[i] |= (unsigned char)mask;
        if (c->launch->family->begin) {
            c->plain[i] = c->thread[thread].fences << 11 | (uint32_t)(thread + 1);
        }
    }
}

void *attn__emu_shared(int thread, uint32_t at, uint32_t bytes, int write) {
    emu_core *const c = attn__emu_here;
    const uint32_t size = (uint32_t)c->launch->shared;
    if (bytes > size || at > size - bytes) {
        attn__emu_fault(thread, "%s %u bytes of shared memory at %u; the block has %u",
                        write ? "writes" : "reads", bytes, at, size);
    }
    if (at % bytes != 0) {
        attn__emu_fault(thread, "%s %u bytes of shared memory at %u, no multiple of it",
                        write ? "writes" : "reads", bytes, at);
    }
    const uint32_t warp = (uint32_t)(thread >> c->shift);
    const uint32_t tag = c->clock[warp].at[warp] << 8 | warp;
    if (write) {
        check_write(c, thread, at, bytes, tag);
    } else {
        check_read(c, thread, at, bytes, tag);
    }
    return c->data + at;
}

/* -- Accesses of lanes alone, gathered to those of a warp -------------------------------------- */

void *attn__emu_shared_own(uint32_t at, uint32_t bytes, int write, uint32_t site) {
    emu_core *const c = attn__emu_here;
    emu_thread *const t = &c->thread[c->now];
    void *const data = attn__emu_shared(c->now, at, bytes, write);
    if (t->owns == t->owns_room) {
        const int room = t->owns_room ? 2 * t->owns_room : 64;
        emu_own *const own = realloc(t->own, (size_t)room * sizeof *own);
        if (!own) {
            attn__emu_fault(c->now, "finds no memory for its list of accesses");
        }
        t->own = own;
        t->owns_room = room;
    }
    t->own[t->owns++] = (emu_own){at, site, (uint8_t)bytes, (uint8_t)write};
    return data;
}

/* Of the lanes' next accesses, which k[] counts, one of the instruction at which fewest lanes are:
   where some lanes take a way of their own, the others wait for them behind it. NULL: none. */
static const emu_own *rarest(const emu_thread *t, int lanes, const int *k) {
    const emu_own *best = NULL;
    int fewest = EMU_LANES + 1;
    for (int i = 0; i < lanes; i++) {
        const emu_own *const mine = k[i] < t[i].owns ? &t[i].own[k[i]] : NULL;
        if (!mine || (best && mine->site == best->site)) {
            continue;
        }
        int n = 0;
        for (int j = 0; j < lanes; j++) {
            n += k[j] < t[j].owns && t[j].own[k[j]].site == mine->site;
        }
        if (n < fewest) {
            best = mine;
            fewest = n;
        }
    }
    return best;
}

/* One access of the warp: of all lanes whose next one is by the same instruction. */
static void count_next(const emu_thread *t, int lanes, int *k, const emu_own *what) {
    const emu_own one = *what;
    uint32_t at[EMU_LANES];
    for (int i = 0; i < lanes; i++) {
        const int is = k[i] < t[i].owns && t[i].own[k[i]].site == one.site &&
                       t[i].own[k[i]].bytes == one.bytes && t[i].own[k[i]].write == one.write;
        at[i] = is ? t[i].own[k[i]].at : (uint32_t)EMU_AWAY;
        k[i] += is;
    }
    attn__emu_banks(at, lanes, one.bytes, one.write);
}

void attn__emu_own_flush(emu_core *c, int warp) {
    const int lanes = c->launch->family->lanes;
    emu_thread *const t = &c->thread[warp * lanes];
    const emu_own *next;
    int k[EMU_LANES] = {0};
    while ((next = rarest(t, lanes, k))) {
        count_next(t, lanes, k, next);
    }
    for (int i = 0; i < lanes; i++) {
        t[i].owns = 0;
    }
}

/* -- Banks ------------------------------------------------------------------------------------- */

int attn__emu_phase(const uint32_t *at, int n, int bytes) {
    enum { BANKS = 32, MOST = EMU_LANES * 4 };
    uint32_t word[BANKS][MOST / 4]; /* different words of a bank */
    int used[BANKS] = {0}, most = 0;
    for (int i = 0; i < n; i++) {
        if (at[i] == (uint32_t)EMU_AWAY) {
            continue;
        }
        for (uint32_t w = at[i] / 4; w < (at[i] + (uint32_t)bytes + 3) / 4; w++) {
            const uint32_t bank = w % BANKS;
            int j = 0;
            while (j < used[bank] && word[bank][j] != w) {
                j++;
            }
            if (j == used[bank]) {
                word[bank][used[bank]++] = w;
                most = used[bank] > most ? used[bank] : most;
            }
        }
    }
    return most;
}

void attn__emu_banks(const uint32_t *at, int n, int bytes, int write) {
    attn__emu_here->launch->family->banks(at, n, bytes, write);
}

void attn__emu_access(int least, int cycles) {
    attn__emu_here->counts.shared_access += (uint64_t)least;
    attn__emu_here->counts.shared_cycles += (uint64_t)cycles;
}
