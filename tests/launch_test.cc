// launch_test.cc: work that does not fit in one launch (attn__launch_items of lib/gpu_kernel.c): it
// is cut, and kernels begin where their launch does. Real limits are out of an emulator's reach, so
// one test only counts, and the other cuts launches that would have fitted.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"
#include "host_call.h"

extern "C" {
#include "gpu_kernel.h"
}

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

using namespace host;

attn__driver changed;       // an emulated chip's driver with another launch
const attn__driver *theirs; // as it was
int pieces;                 // launches made of one

// The work items of a kernel are the same whether one launch or several bring its blocks.
int in_pieces(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
              int threads, int shared, const void *params, size_t bytes, void *stream) {
    enum { PIECE = 3 };
    const bool items = std::strcmp(kernel, "attn_fwd") == 0 ||
                       std::strcmp(kernel, "attn_bwd") == 0 ||
                       std::strcmp(kernel, "attn_bwd_dq") == 0;
    if (!items) {
        return theirs->launch(chip, module, kernel, blocks, threads, shared, params, bytes, stream);
    }
    std::vector<i64> copy((bytes + 7) / 8);
    std::memcpy(copy.data(), params, bytes);
    auto *const p = reinterpret_cast<attn_params *>(copy.data());
    for (int64_t first = 0; first < blocks; first += PIECE) {
        p->first = first;
        pieces++;
        const int status =
            theirs->launch(chip, module, kernel, std::min<int64_t>(PIECE, blocks - first), threads,
                           shared, copy.data(), bytes, stream);
        if (status != ATTN_OK) {
            return status;
        }
    }
    return ATTN_OK;
}

struct Launch {
    int64_t first, blocks;
};
std::vector<Launch> seen;
int counted(attn__chip *, attn__module *, const char *, int64_t blocks, int, int,
            const void *params, size_t, void *) {
    seen.push_back({static_cast<const attn_params *>(params)->first, blocks});
    return ATTN_OK;
}

void change(const Device &device, decltype(changed.launch) launch) {
    theirs = device.d->driver;
    changed = *theirs;
    changed.launch = launch;
    device.d->driver = &changed;
}

// The bits of everything that a call writes.
std::vector<double> bits_of(const Device &device, int direction) {
    Call call;
    call.B = 2;
    call.NQ = 150;
    call.NK = 100;
    call.D = call.DV = 32;
    call.type = call.real = ATTN_F16;
    call.fill();
    call.c.flags = ATTN_DETERMINISTIC;
    if (direction == ATTN_FORWARD) {
        call.c.dout = call.c.dq = call.c.dk = call.c.dv = nullptr;
    }
    const Variant causal("k <= q ? s : -inf");
    REQUIRE(run(device.d, direction, call.c, causal.v) == ATTN_OK);
    std::vector<double> all;
    for (const Tensor *t :
         {call.o.get(), call.lse.get(), call.dq.get(), call.dk.get(), call.dv.get()}) {
        all.insert(all.end(), t->storage.begin(), t->storage.end());
    }
    return all;
}

} // namespace

TEST_CASE("kernels begin where their launch does") {
    if (!emu::has_cc()) {
        WARN("skipped: no C compiler");
        return;
    }
    // sm_90a's forward takes its items from a counter, in one launch.
    for (const char *const chip : {"emu:sm_80", "emu:gfx90a", "emu:gfx942"}) {
        for (const int direction : {ATTN_FORWARD, ATTN_BACKWARD}) {
            const Device whole(chip), cut(chip);
            change(cut, in_pieces);
            pieces = 0;
            INFO(chip << (direction == ATTN_FORWARD ? " forward" : " backward"));
            const std::vector<double> a = bits_of(whole, direction), b = bits_of(cut, direction);
            CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
            CHECK(pieces > 2);
        }
    }
}

TEST_CASE("a launch has at most 2^31 threads") {
    const Device device("emu:gfx942");
    REQUIRE(device.status == ATTN_OK);
    change(device, counted);
    alignas(16) char no_module[256] = {};
    attn_plan plan{};
    plan.device = device.d;
    attn__kernel kernel{};
    kernel.code = reinterpret_cast<attn__kernel_code *>(no_module);
    kernel.threads = 256;
    for (const int64_t items :
         {int64_t{1}, int64_t{1} << 23, (int64_t{1} << 23) + 1, int64_t{3} << 23}) {
        attn_params p{};
        p.B = p.group = p.near = 1;
        p.q_tiles = p.splits = 1;
        p.xcds = 8;
        p.items = items;
        seen.clear();
        REQUIRE(attn__launch_items(&plan, &kernel, &p, sizeof p, nullptr) == ATTN_OK);
        int64_t next = 0;
        for (const Launch &launch : seen) {
            CHECK(launch.first == next);
            CHECK(launch.blocks * kernel.threads <= int64_t{1} << 31);
            next += launch.blocks;
        }
        CHECK(next == (items + 7) / 8 * 8);
        CHECK(seen.size() == static_cast<size_t>((next + (1 << 23) - 1) >> 23));
    }
}
