// work_test.cc: which work item a block's number is (core/work.h), in which order, on how many
// chiplets; which key blocks an item visits (core/range.h). By kernels that are emulated.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

extern "C" {
#include "gpu_kernel.h"
}

#include <array>
#include <cstring>
#include <set>

namespace {

// Of each block number: whether there is an item, batch entry, query head, key head, row block,
// split.
const char *const text = R"(
#include "core/params.h"
#include "core/work.h"
DEV void body(const args *a) {
    const attn_params *const p = (const attn_params *)a->in;
    for (i32 n = 0; n < a->n && thread_id() == 0; n++) {
        attn_item w;
        const u64 to = a->out + (u64)n * 24;
        const int there = work_place(p, n, &w);
        store_u32(to, (u32)there);
        store_u32(to + 4, there ? (u32)w.b : 0);
        store_u32(to + 8, there ? (u32)w.h : 0);
        store_u32(to + 12, there ? (u32)w.hk : 0);
        store_u32(to + 16, there ? (u32)w.row0 / ATTN_BM : 0);
        store_u32(to + 20, there ? (u32)w.split : 0);
    }
}
ATTN_ENTRY(kernel, body, args)
)";

struct Shape {
    int32_t B, H, HK, pack, q_tiles, splits, near, xcds;
    int64_t heads() const { return int64_t{B} * (pack > 1 ? HK : H); }
    int64_t items() const { return heads() * q_tiles * splits; }
    int64_t xcd_items() const { return (items() + xcds - 1) / xcds; }
};
using Item = std::array<uint32_t, 6>;

// 2^64 / d rounded up, 0 for 1.
uint64_t per(int64_t d) {
    return d == 1 ? 0 : ~uint64_t{0} / static_cast<uint64_t>(d) + 1;
}

std::vector<Item> items_of(emu::Code &code, const Shape &s) {
    attn_params p;
    std::memset(&p, 0, sizeof p);
    p.B = s.B;
    p.H = s.H;
    p.HK = s.HK;
    p.group = s.H / s.HK;
    p.pack = s.pack;
    p.q_tiles = s.q_tiles;
    p.splits = s.splits;
    p.near = s.near;
    p.xcds = s.xcds;
    p.items = s.items();
    p.xcd_items = s.xcd_items();
    p.per_xcds = per(s.xcds);
    p.per_splits = per(s.splits);
    p.per_section = per(int64_t{s.near} * s.q_tiles);
    p.per_heads = per(s.pack > 1 ? s.HK : s.H);
    p.per_group = per(p.group);
    std::vector<Item> out(static_cast<size_t>(s.xcds * s.xcd_items()));
    emu::check(code.launch(
        "kernel",
        {reinterpret_cast<uint64_t>(&p), emu::Code::at(out), static_cast<int32_t>(out.size())}, 1,
        64));
    return out;
}

const Shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},  {2, 6, 3, 1, 5, 1, 1, 1},     {2, 6, 3, 1, 5, 3, 4, 1},
    {3, 4, 2, 2, 4, 2, 4, 8},  {2, 5, 5, 1, 7, 1, 3, 8},     {1, 3, 1, 3, 2, 5, 1, 8},
    {5, 8, 2, 1, 1, 1, 16, 8}, {1, 7, 7, 1, 13, 1, 1024, 1},
};

// How often each key block is visited by each row block, and 100 where it is said to be full. The
// mask: first <= q - k <= last.
const char *const range_text = R"(
#undef ATTN_HAS_MASK
#define ATTN_HAS_MASK 1
#include "core/params.h"
#include "core/work.h"
typedef struct attn_box {
    i32 b, h0, h1, q0, q1, i0, i1, k0, k1, nq, nk, nh, hk, batch;
} attn_box;
DEV int attn_class(const attn_params *p, const attn_box *box) {
    const i32 first = (i32)p->b0, last = (i32)p->h0;
    const i32 least = box->q0 - box->k1, most = box->q1 - box->k0;
    return most < first || least > last ? 0 : least >= first && most <= last ? 2 : 1;
}
#include "core/range.h"
DEV void body(const args *a) {
    const attn_params *const p = (const attn_params *)a->in;
    const i32 blocks = (p->NK + ATTN_BN - 1) / ATTN_BN;
    for (i32 tile = 0; tile < p->q_tiles; tile++) {
        attn_item w;
        attn_range it;
        w.b = w.h = w.hk = w.split = 0;
        w.seq = seq_of(p, 0);
        w.row0 = tile * ATTN_BM;
        work_rows(p, &w);
        range_begin(&it, p, &w);
        i32 told;
        while ((told = range_next(&it, p, &w)) >= 0) {
            const u64 at = a->out + (u64)(tile * blocks + block_number(told)) * 4;
            if (thread_id() == 0) {
                store_u32(at, load_u32(at) + 1 + (block_is_full(told) ? 100u : 0u));
            }
        }
    }
}
ATTN_ENTRY(kernel, body, args)
)";

struct Window {
    int32_t nq, nk, first, last;
};

} // namespace

TEST_CASE("each work item has one number, and its key head is that of its query head") {
    NEEDS_CC();
    for (const char *const name : {"emu:sm_80", "emu:gfx942"}) {
        emu::Chip chip(name);
        emu::Code code(chip, text);
        for (const Shape &s : shapes) {
            std::set<Item> seen;
            for (const Item &item : items_of(code, s)) {
                if (item[0]) {
                    CHECK(seen.insert(item).second);
                    CHECK(item[1] < static_cast<uint32_t>(s.B));
                    CHECK(item[2] < static_cast<uint32_t>(s.H));
                    CHECK(item[3] == item[2] / static_cast<uint32_t>(s.H / s.HK));
                    CHECK(item[4] < static_cast<uint32_t>(s.q_tiles));
                    CHECK(item[5] < static_cast<uint32_t>(s.splits));
                }
            }
            CHECK(static_cast<int64_t>(seen.size()) == s.items());
        }
    }
}

TEST_CASE("items are numbered by section, row block (last first), head, split") {
    NEEDS_CC();
    emu::Chip chip("emu:gfx942");
    emu::Code code(chip, text);
    for (const Shape &s : shapes) {
        const std::vector<Item> items = items_of(code, s);
        int64_t n = 0;
        for (int64_t first = 0; first < s.heads(); first += s.near) {
            for (int32_t tile = s.q_tiles - 1; tile >= 0; tile--) {
                for (int64_t bh = first; bh < first + s.near && bh < s.heads(); bh++) {
                    for (int32_t split = 0; split < s.splits; split++, n++) {
                        // Items that follow each other run on one chiplet, every xcds-th block.
                        const int64_t block = n % s.xcd_items() * s.xcds + n / s.xcd_items();
                        const Item &item = items[static_cast<size_t>(block)];
                        const int64_t heads = s.heads() / s.B, head = bh % heads;
                        CHECK(item[0] == 1);
                        CHECK(item[1] == static_cast<uint32_t>(bh / heads));
                        CHECK(item[2] ==
                              static_cast<uint32_t>(s.pack > 1 ? head * (s.H / s.HK) : head));
                        CHECK(item[4] == static_cast<uint32_t>(tile));
                        CHECK(item[5] == static_cast<uint32_t>(split));
                    }
                }
            }
        }
        CHECK(n == s.items());
    }
}

TEST_CASE("blocks of which a pair is visible are visited once, and full ones are told to be so") {
    NEEDS_CC();
    const Window windows[] = {
        {200, 200, 0, 1 << 30}, {130, 9000, 0, 1 << 30}, {300, 5000, 0, 127},
        {64, 640, -64, 64},     {70, 9000, 300, 8000},   {100, 100, -(1 << 30), 1 << 30},
        {65, 129, 500, 600},
    };
    for (const char *const name : {"emu:sm_80", "emu:gfx942"}) {
        emu::Chip chip(name);
        emu::Code code(chip, range_text);
        for (const Window &x : windows) {
            const int32_t tiles = (x.nq + 63) / 64, blocks = (x.nk + 63) / 64;
            attn_params p;
            std::memset(&p, 0, sizeof p);
            p.B = p.H = p.HK = p.group = p.pack = p.splits = p.nh = p.hk = p.batch = 1;
            p.NQ = p.q_most = x.nq;
            p.NK = p.k_most = x.nk;
            p.TQ = x.nq;
            p.TK = x.nk;
            p.q_tiles = tiles;
            p.b0 = x.first;
            p.h0 = x.last;
            std::vector<uint32_t> out(static_cast<size_t>(tiles * blocks), 0);
            emu::check(code.launch("kernel",
                                   {reinterpret_cast<uint64_t>(&p), emu::Code::at(out), 0}, 1, 64));
            int wrong = 0;
            for (int32_t t = 0; t < tiles; t++) {
                for (int32_t n = 0; n < blocks; n++) {
                    int64_t seen = 0, pairs = 0;
                    for (int32_t i = t * 64; i < t * 64 + 64 && i < x.nq; i++) {
                        for (int32_t k = n * 64; k < n * 64 + 64 && k < x.nk; k++) {
                            const int32_t far = i + x.nk - x.nq - k;
                            seen += far >= x.first && far <= x.last;
                            pairs++;
                        }
                    }
                    const bool whole = n * 64 + 64 <= x.nk; // what is behind the end is masked
                    const uint32_t want = seen == 0 ? 0 : seen == pairs && whole ? 101 : 1;
                    wrong += out[static_cast<size_t>(t * blocks + n)] != want;
                }
            }
            INFO(name << " " << x.nq << " " << x.nk << " " << x.first << " " << x.last);
            CHECK(wrong == 0);
        }
    }
}
