// io_test.cc: bytes between device memory and chip, counted by the emulator launch by launch,
// against the formulas of docs/io.md.
//
//   forward     Q once, K and V once per block of rows, O and LSE once (Dao, arXiv 2205.14135,
//               section 3.2: the tile, not N, says how often K and V are read)
//   backward    the same of both its sides, or fused with parts of dQ
//   standard    with S, P, dP and dS written to memory and read back (io_standard.h)
//
// The page's tables are compared here, row by row.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"
#include "host_call.h"
#include "io_standard.h"

extern "C" {
#include "target.h"
}

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// -- What is counted ------------------------------------------------------------------------------

struct Launch {
    std::string kernel;
    uint64_t loaded, stored, conflicts; // conflicts: cycles of shared memory over the least
    uint64_t all() const { return loaded + stored; }
};
std::vector<Launch> launches; // of the last call

int counted_launch(attn__chip *chip, attn__module *module, const char *kernel, int64_t blocks,
                   int threads, int shared, const void *params, size_t bytes, void *stream) {
    attn__emu_counts n;
    const int status =
        attn__emu.launch(chip, module, kernel, blocks, threads, shared, params, bytes, stream);
    attn__emu_last(chip, &n);
    launches.push_back({kernel, n.load_bytes, n.store_bytes, n.shared_cycles - n.shared_access});
    return status;
}
uint64_t all_launches() {
    uint64_t sum = 0;
    for (const Launch &l : launches) {
        sum += l.all();
    }
    return sum;
}

// An emulated chip whose launches are counted, and whose plans take the tiles of a test.
struct Chip {
    attn__driver driver;
    attn__tile_row tiles[1];
    attn__grad_row grads[1];
    attn_device *device = nullptr;

    explicit Chip(const char *name) : driver(attn__emu) {
        driver.launch = counted_launch;
        emu::check(attn_device_open(name, nullptr, &device));
        device->driver = &driver;
    }
    ~Chip() { attn_device_release(device); }
    Chip(const Chip &) = delete;
    attn__target *target() { return const_cast<attn__target *>(attn__emu.target(device->chip)); }
    bool is_cdna() { return target()->lanes == 64; }
    int rows_of_warp() { return is_cdna() ? 32 : 16; } // at least

    void forward_tile(int type, const attn__tile_size &tile) {
        tiles[0] = {attn__type_bytes(type), 256, tile};
        target()->tiles = tiles;
    }
    void backward_tile(int type, const attn__tile_size &tile, bool one_by_one) {
        grads[0] = {attn__type_bytes(type), 256, {tile, one_by_one, {0, 0, 0, 0}, 0}};
        target()->grads = grads;
    }
    void fused_tile(int type, const attn__tile_size &tile, int split) {
        grads[0] = {attn__type_bytes(type), 256, {tile, 0, tile, split}};
        target()->grads = grads;
    }
};

// One head of N queries and keys.
struct Head {
    int N, D, type;
    host::Call call;
    std::string kernel;

    Head(int n, int d, int t) : N(n), D(d), type(t) {
        call.B = call.H = call.HK = 1;
        call.NQ = call.NK = n;
        call.D = call.DV = d;
        call.type = call.real = t;
        call.fill();
    }
    void run(Chip &chip, int direction, unsigned flags) {
        attn_plan *plan;
        attn_plan_info info = {};
        void *workspace = nullptr;
        info.size = sizeof info;
        call.c.flags = flags;
        launches.clear();
        emu::check(attn_plan_new(chip.device, direction, &call.c, nullptr, &plan));
        emu::check(attn_plan_query(plan, &info));
        emu::check(attn_buffer_new(chip.device, info.workspace, &workspace));
        const int status = attn_run(plan, &call.c, workspace, nullptr);
        attn_buffer_release(chip.device, workspace);
        attn_plan_release(plan);
        emu::check(status);
        kernel = info.kernel;
    }
    // The whole sequence in one pass, not split.
    void forward(Chip &chip) { run(chip, ATTN_FORWARD, ATTN_BATCH_INVARIANT); }
    void backward(Chip &chip, bool fused) {
        run(chip, ATTN_BACKWARD, 0);
        REQUIRE((kernel.find("fused") != std::string::npos) == fused);
    }
    double difference(const standard::Half &x, const host::Tensor &from) const {
        double worst = 0;
        for (size_t i = 0; i < x.size(); i++) {
            worst = std::fmax(worst, std::fabs(attn__f16_to_f32(x[i]) - from.get((int64_t)i)));
        }
        return worst;
    }
};

// -- The formulas of docs/io.md -------------------------------------------------------------------

uint64_t blocks_of(uint64_t n, uint64_t m) {
    return (n + m - 1) / m;
}

// N queries and keys, D columns of b bytes; W columns as compiled; a row's statistics are asked for
// by each of `share` lanes that have it. M rows of a block, m of a step.
struct Sizes {
    uint64_t N, D, W, b, share;
    bool whole; // what a block owns is asked for in the compiled size: CDNA

    Sizes(const Head &head, Chip &chip)
        : N((uint64_t)head.N), D((uint64_t)head.D), W(256),
          b((uint64_t)attn__type_bytes(head.type)), share(chip.is_cdna() ? 2 : 4),
          whole(chip.is_cdna()) {
        for (const uint64_t w : {192, 128, 96, 64, 32}) {
            W = w >= D ? w : W;
        }
    }
    uint64_t rows() const { return N * D * b; }
    uint64_t own(uint64_t M) const { return whole ? blocks_of(N, M) * M * W * b : rows(); }
    uint64_t met(uint64_t M) const { return blocks_of(N, M) * 2 * rows(); }
    uint64_t met_stats(uint64_t M) const { return blocks_of(N, M) * 8 * N; }
    uint64_t parts(uint64_t m) const { return blocks_of(N, m) * m * W * 4; }

    uint64_t forward(uint64_t M) const { return own(M) + met(M) + rows() + 4 * N; }
    uint64_t before() const { return 2 * rows() + 12 * N; }
    uint64_t dq(uint64_t M) const { return 2 * own(M) + met(M) + 8 * N * share + rows(); }
    uint64_t dkdv(uint64_t M) const { return 2 * own(M) + met(M) + met_stats(M) + 2 * rows(); }
    uint64_t dk(uint64_t M) const { return dkdv(M) - rows(); }
    uint64_t dv(uint64_t M) const { return dkdv(M) - rows() - own(M); }
    uint64_t fused(uint64_t M, uint64_t m) const { return dkdv(M) + blocks_of(N, M) * parts(m); }

    std::vector<uint64_t> apart(uint64_t M) const { return {before(), dq(M), dkdv(M)}; }
    std::vector<uint64_t> three(uint64_t M) const { return {before(), dq(M), dk(M), dv(M)}; }
    std::vector<uint64_t> at_once(uint64_t M, uint64_t m) const {
        return {before() + parts(m), fused(M, m), parts(m) + rows()};
    }
};

void check_launches(const Head &head, const std::vector<uint64_t> &formulas) {
    REQUIRE(launches.size() == formulas.size());
    for (size_t i = 0; i < formulas.size(); i++) {
        INFO(head.kernel << " N " << head.N << ", " << launches[i].kernel << ": counted "
                         << launches[i].all() << ", formula " << formulas[i]);
        CHECK(std::fabs((double)launches[i].all() / (double)formulas[i] - 1) < 0.03);
    }
}

// 96 columns: rows of no multiple of 128 bytes; 100: in f16 of no multiple of 16.
const struct Point {
    int type, N, D;
} grid[] = {{ATTN_F16, 64, 64},   {ATTN_F16, 512, 64},  {ATTN_F16, 256, 128}, {ATTN_F16, 130, 96},
            {ATTN_F16, 200, 256}, {ATTN_F16, 130, 100}, {ATTN_F32, 200, 64}};

// A row of a table in docs/io.md: numbers, bytes in KiB.
struct Row {
    std::string text = "|";
    Row &number(int n) { return cell("%.0f", n); }
    Row &kib(uint64_t bytes) { return cell("%.1f", (double)bytes / 1024); }
    Row &cell(const char *format, double x) {
        char t[64];
        std::snprintf(t, sizeof t, format, x);
        text += std::string(" ") + t + " |";
        return *this;
    }
    void check() const {
        std::ifstream file("docs/io.md");
        const std::string page((std::istreambuf_iterator<char>(file)),
                               std::istreambuf_iterator<char>());
        if (page.empty()) {
            WARN("skipped: no docs/io.md in the current folder");
            return;
        }
        INFO(text);
        CHECK(page.find(text + "\n") != std::string::npos);
    }
};

} // namespace

TEST_CASE("forward: Q once, K and V once per block of rows, and no bank has conflicts") {
    NEEDS_CC();
    for (const char *device : {"emu:sm_80", "emu:gfx942"}) {
        Chip chip(device);
        for (const Point &x : grid) {
            Head head(x.N, x.D, x.type);
            head.forward(chip);
            int M;
            REQUIRE(std::sscanf(head.kernel.c_str(), "%*s %*s %dx", &M) == 1);
            check_launches(head, {Sizes(head, chip).forward((uint64_t)M)});
            // Elements one by one may conflict.
            CHECK((launches[0].conflicts == 0 || x.D == 100));
            CHECK(launches[0].stored == Sizes(head, chip).rows() + 4 * (uint64_t)x.N);
        }
    }
}

TEST_CASE("backward, apart: what a block owns once, what passes by once per block") {
    NEEDS_CC();
    for (const char *device : {"emu:sm_80", "emu:gfx942"}) {
        Chip chip(device);
        for (const Point &x : grid) {
            for (const int M : {64, 128}) {
                // Few rows take a smaller tile. Elements one by one: CDNA reads them twice.
                if (2 * x.N <= M || (chip.is_cdna() && x.D == 100)) {
                    continue;
                }
                Head head(x.N, x.D, x.type);
                const bool one_by_one = x.D > 128;
                chip.backward_tile(x.type, {M, 32, M / chip.rows_of_warp(), 1}, one_by_one);
                head.backward(chip, false);
                const Sizes z(head, chip);
                check_launches(head, one_by_one ? z.three((uint64_t)M) : z.apart((uint64_t)M));
            }
        }
    }
}

TEST_CASE("backward, fused: a side, and parts of dQ once per block of keys") {
    NEEDS_CC();
    Chip chip("emu:sm_80");
    for (const Point &x : grid) {
        for (const int M : {64, 128}) {
            if (x.type != ATTN_F16 || x.D * M > 128 * 128) {
                continue; // there is none, or no shared memory for it
            }
            Head head(x.N, x.D, x.type);
            chip.fused_tile(x.type, {M, 64, M / 16, 1}, 2);
            head.backward(chip, true);
            check_launches(head, Sizes(head, chip).at_once((uint64_t)M, 64));
        }
    }
}

// A head by the library, then by the standard algorithm, which must have the same results.
TEST_CASE("the standard algorithm moves S, P, dP and dS besides, as docs/io.md shows") {
    NEEDS_CC();
    emu::Chip plain("emu:gfx942");
    emu::Code code(plain, standard::text);
    Chip cdna("emu:gfx942"), sm("emu:sm_80");
    cdna.forward_tile(ATTN_F16, {128, 64, 4, 1});
    cdna.backward_tile(ATTN_F16, {128, 32, 4, 1}, false);
    for (const int D : {64, 128}) {
        sm.fused_tile(ATTN_F16, {128, D == 64 ? 128 : 64, 8, 2}, 2);
        for (const int N : {128, 256, 512}) {
            const uint64_t n = (uint64_t)N, d = (uint64_t)D;
            Head head(N, D, ATTN_F16);
            head.forward(cdna);
            const uint64_t forward = all_launches();
            head.backward(sm, true);
            const uint64_t fused = all_launches();
            head.backward(cdna, false);
            const uint64_t apart = all_launches();

            standard::Head other(plain, code, N, D);
            const host::Call &c = head.call;
            other.forward(c.q->t.data, c.k->t.data, c.v->t.data);
            const uint64_t other_forward = other.bytes;
            other.backward(c.q->t.data, c.k->t.data, c.v->t.data, c.dout->t.data);
            const uint64_t other_backward = other.bytes - other_forward;
            CHECK(other_forward == standard::forward_bytes(n, d));
            CHECK(other_backward == standard::backward_bytes(n, d));
            for (const double error :
                 {head.difference(other.o, *c.o), head.difference(other.dq, *c.dq),
                  head.difference(other.dk, *c.dk), head.difference(other.dv, *c.dv)}) {
                CHECK(error < 4e-3);
                CHECK(error > 0);
            }
            Row()
                .number(D)
                .number(N)
                .kib(forward)
                .kib(other_forward)
                .cell("%.1f", (double)other_forward / (double)forward)
                .kib(apart)
                .kib(fused)
                .kib(other_backward)
                .cell("%.1f", (double)other_backward / (double)apart)
                .check();
        }
    }
}

TEST_CASE("more rows on the chip, fewer bytes: in proportion, as docs/io.md shows") {
    NEEDS_CC();
    const int N = 512, D = 64;
    Chip chip("emu:sm_80");
    for (const int M : {16, 32, 64, 128}) {
        const uint64_t m = (uint64_t)M;
        Head head(N, D, ATTN_F16);
        const Sizes z(head, chip);
        chip.forward_tile(ATTN_F16, {M, 32, M / 16, 1});
        head.forward(chip);
        check_launches(head, {z.forward(m)});
        const uint64_t forward = all_launches();
        chip.backward_tile(ATTN_F16, {M, 32, M / 16, 1}, false);
        head.backward(chip, false);
        check_launches(head, z.apart(m));
        const uint64_t apart = all_launches();
        Row()
            .number(M)
            .kib(m * z.D * z.b)
            .kib(forward)
            .kib(z.met(m))
            .kib(apart)
            .kib(2 * (z.met(m)))
            .check();
    }
}
