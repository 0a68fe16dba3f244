// io_test.cc: bytes between device memory and chip, counted by the emulator, against two formulas.
//
//   forward     Q once, K and V once per block of rows, O and LSE once (Dao, arXiv 2205.14135,
//               section 3.2: the tile, not N, says how often K and V are read)
//   standard    the same blocks of rows, with S and P written to memory and read back (section 2.2)
//
// docs/io.md has the table; its rows are compared here.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <string>
#include <vector>

// Three kernels: S = scale Q K', P = softmax(S), O = P V. A thread has a row, a block 128 rows; K
// and V pass through shared memory once per block, 32 rows at a time. All numbers are f16, D is 64
// or 128, and every byte is read and written as seldom as three kernels can.
static const char *const standard = R"(
enum { ROWS = 128, STEP = 32 };
typedef struct standard { u64 q, k, v, s, o; i32 N, D; float scale; } standard;

DEV i64 my_row(void) { return block_id() * ROWS + thread_id(); }

// Rows row .. row + 31 of `from`, 16 bytes at a time.
DEV void stage(u64 from, i32 row, i32 D) {
    block_sync();
    for (i32 i = thread_id(); i < STEP * D / 8; i += ROWS) {
        shared_store_b128((u32)i * 16, load_b128(from + ((u64)row * (u64)D * 2 + (u64)i * 16)));
    }
    block_sync();
}
DEV void unpack(float *to, b128 x) {
    for (int i = 0; i < 4; i++) {
        to[2 * i] = float_of_f16(x.w[i] & 0xffff);
        to[2 * i + 1] = float_of_f16(x.w[i] >> 16);
    }
}
DEV b128 packed(const float *from) {
    b128 x;
    for (int i = 0; i < 4; i++) { x.w[i] = pack_f16(from[2 * i], from[2 * i + 1]); }
    return x;
}

DEV void scores_body(const args *a) {
    const standard *const p = (const standard *)a->in;
    float q[128], s[STEP], k[8];
    for (i32 d = 0; d < p->D; d += 8) {
        unpack(q + d, load_b128(p->q + (u64)(my_row() * p->D + d) * 2));
    }
    for (i32 at = 0; at < p->N; at += STEP) {
        stage(p->k, at, p->D);
        for (i32 j = 0; j < STEP; j++) {
            s[j] = 0;
            for (i32 d = 0; d < p->D; d += 8) {
                unpack(k, shared_load_b128((u32)(j * p->D + d) * 2));
                for (int e = 0; e < 8; e++) { s[j] += q[d + e] * k[e] * p->scale; }
            }
        }
        for (i32 j = 0; j < STEP; j += 8) {
            store_b128(p->s + (u64)(my_row() * p->N + at + j) * 2, packed(s + j));
        }
    }
}
ATTN_ENTRY(scores, scores_body, args)

DEV void softmax_body(const args *a) {
    const standard *const p = (const standard *)a->in;
    float s[512], most = -1e30f, sum = 0;
    const u64 row = p->s + (u64)(my_row() * p->N) * 2;
    for (i32 j = 0; j < p->N; j += 8) {
        unpack(s + j, load_b128(row + (u64)j * 2));
        for (int e = 0; e < 8; e++) { most = max_num(most, s[j + e]); }
    }
    for (i32 j = 0; j < p->N; j++) {
        s[j] = exp2_fast((s[j] - most) * 1.44269504f);
        sum += s[j];
    }
    for (i32 j = 0; j < p->N; j++) { s[j] /= sum; }
    for (i32 j = 0; j < p->N; j += 8) { store_b128(row + (u64)j * 2, packed(s + j)); }
}
ATTN_ENTRY(softmax, softmax_body, args)

DEV void output_body(const args *a) {
    const standard *const p = (const standard *)a->in;
    float o[128] = {0}, w[STEP], v[8];
    for (i32 at = 0; at < p->N; at += STEP) {
        stage(p->v, at, p->D);
        for (i32 j = 0; j < STEP; j += 8) {
            unpack(w + j, load_b128(p->s + (u64)(my_row() * p->N + at + j) * 2));
        }
        for (i32 j = 0; j < STEP; j++) {
            for (i32 d = 0; d < p->D; d += 8) {
                unpack(v, shared_load_b128((u32)(j * p->D + d) * 2));
                for (int e = 0; e < 8; e++) { o[d + e] += w[j] * v[e]; }
            }
        }
    }
    for (i32 d = 0; d < p->D; d += 8) {
        store_b128(p->o + (u64)(my_row() * p->D + d) * 2, packed(o + d));
    }
}
ATTN_ENTRY(output, output_body, args)
)";

namespace {

struct Standard { // as the kernels have it
    uint64_t q, k, v, s, o;
    int32_t N, D;
    float scale;
};

struct Bytes {
    uint64_t loaded, stored, conflicts; // conflicts: cycles of shared memory over the least
    uint64_t all() const { return loaded + stored; }
};

// One head: q, k, v and what is computed of them, all of one type.
struct Head {
    int N, D, type;
    std::vector<uint16_t> half[4]; // f16: q, k, v, o
    std::vector<float> single[4];  // f32
    std::vector<float> lse;
    std::string kernel; // "gfx942 f16 128x64 of 64x64 ..."

    Head(int n, int d, int t) : N(n), D(d), type(t), lse((size_t)n) {
        uint32_t x = 1;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < N * D; j++) {
                x = x * 1664525u + 1013904223u;
                const float value = i < 3 ? (float)(x >> 8) * 0x1p-23f - 1 : 0;
                single[i].push_back(value);
                half[i].push_back(attn__f32_to_f16(value));
            }
        }
    }
    attn_tensor tensor(int i) {
        void *const data = type == ATTN_F16 ? (void *)half[i].data() : (void *)single[i].data();
        shapes.push_back({1, 1, N, D});
        attn_tensor t = {};
        t.data = data;
        t.ndim = 4;
        t.dtype = {(uint8_t)(type & 255), (uint8_t)(type >> 8), 1};
        t.shape = shapes.back().data();
        return t;
    }
    // By the library: the whole sequence in one pass, not split.
    Bytes forward(const char *name) {
        attn_device *device;
        attn_plan *plan;
        attn__emu_counts counts;
        attn_tensor t[] = {tensor(0), tensor(1), tensor(2), tensor(3), tensor(3)};
        t[4].ndim = 3;
        t[4].dtype = {(uint8_t)(ATTN_F32 & 255), (uint8_t)(ATTN_F32 >> 8), 1};
        t[4].data = lse.data();
        attn_call call = {};
        attn_plan_info info = {};
        call.size = sizeof call;
        call.q = &t[0], call.k = &t[1], call.v = &t[2], call.o = &t[3], call.lse = &t[4];
        call.flags = ATTN_BATCH_INVARIANT;
        info.size = sizeof info;
        emu::check(attn_device_open(name, nullptr, &device));
        emu::check(attn_plan_new(device, ATTN_FORWARD, &call, nullptr, &plan));
        emu::check(attn_plan_query(plan, &info));
        kernel = info.kernel;
        REQUIRE(info.workspace == 0);
        emu::check(attn_run(plan, &call, nullptr, nullptr));
        attn__emu_last(device->chip, &counts);
        attn_plan_release(plan);
        attn_device_release(device);
        return {counts.load_bytes, counts.store_bytes, counts.shared_cycles - counts.shared_access};
    }
    // By the three kernels, after forward(): its o must be the same. N is a multiple of 128.
    Bytes standard_way(emu::Chip &chip, emu::Code &code) {
        std::vector<uint16_t> s((size_t)N * (size_t)N), out((size_t)(N * D));
        const Standard p = {emu::Code::at(half[0]),
                            emu::Code::at(half[1]),
                            emu::Code::at(half[2]),
                            emu::Code::at(s),
                            emu::Code::at(out),
                            N,
                            D,
                            1 / std::sqrt((float)D)};
        Bytes sum = {};
        for (const char *name : {"scores", "softmax", "output"}) {
            emu::check(code.launch(name, {(uint64_t)&p, 0, 0}, N / 128, 128, 32 * D * 2));
            sum.loaded += chip.last().load_bytes;
            sum.stored += chip.last().store_bytes;
        }
        float worst = 0;
        for (size_t i = 0; i < out.size(); i++) {
            worst = std::fmax(worst,
                              std::fabs(attn__f16_to_f32(out[i]) - attn__f16_to_f32(half[3][i])));
        }
        CHECK(worst < 1e-3);
        CHECK(worst > 0);
        return sum;
    }
    int rows() const { return size(0); } // of a block
    int size(int which) const {          // 0 rows, 1 keys, 2 D and 3 DV as compiled
        int x[4] = {};
        REQUIRE(std::sscanf(kernel.c_str(), "%*s %*s %dx%d of %dx%d", x, x + 1, x + 2, x + 3) == 4);
        return x[which];
    }
    // Of q what there is, or whole blocks of the compiled size.
    uint64_t formula(int whole = 0) const {
        const uint64_t n = (uint64_t)N, d = (uint64_t)D, bytes = type == ATTN_F16 ? 2 : 4;
        const uint64_t m = (uint64_t)rows(), blocks = (n + m - 1) / m;
        const uint64_t q = whole ? blocks * m * (uint64_t)size(2) : n * d;
        const uint64_t kv = blocks * n * 2 * d, o = n * d;
        return (q + kv + o) * bytes + n * 4;
    }

  private:
    std::list<std::array<int64_t, 4>> shapes;
};

} // namespace

TEST_CASE("forward reads Q once, K and V once per block of rows, and no bank has conflicts") {
    NEEDS_CC();
    // 96 columns: rows of no multiple of 128 bytes; 100: no multiple of 16.
    static const struct {
        int type, N, D;
    } grid[] = {{ATTN_F16, 64, 64},  {ATTN_F16, 512, 64},  {ATTN_F16, 256, 128},
                {ATTN_F16, 130, 96}, {ATTN_F16, 200, 256}, {ATTN_F16, 130, 100},
                {ATTN_F32, 200, 64}};
    for (const char *device : {"emu:sm_80", "emu:gfx942"}) {
        for (const auto &x : grid) {
            Head head(x.N, x.D, x.type);
            const Bytes bytes = head.forward(device);
            INFO(head.kernel << " N " << x.N << " D " << x.D);
            // Lanes whose element of q is not there may read another one.
            CHECK((double)bytes.all() >= 0.97 * (double)head.formula());
            CHECK((double)bytes.all() <= 1.03 * (double)head.formula(1));
            CHECK((bytes.conflicts == 0 || x.D == 100)); // elements one by one may conflict
            CHECK(bytes.stored == (uint64_t)(x.N * x.D * (x.type == ATTN_F16 ? 2 : 4) + x.N * 4));
        }
    }
}

// A row of the table in docs/io.md.
static std::string table_row(const Head &head, const Bytes &bytes, const Bytes &standard_bytes) {
    char text[160];
    std::snprintf(text, sizeof text, "| %d | %d | %d | %.1f | %.1f | %.1f | %.1f |", head.D, head.N,
                  head.rows(), (double)bytes.all() / 1024, (double)head.formula() / 1024,
                  (double)standard_bytes.all() / 1024,
                  (double)standard_bytes.all() / (double)bytes.all());
    return text;
}

TEST_CASE("the standard algorithm moves S and P besides, as docs/io.md shows") {
    NEEDS_CC();
    emu::Chip chip("emu:gfx942");
    emu::Code code(chip, standard);
    std::ifstream file("docs/io.md");
    const std::string page((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    if (page.empty()) {
        WARN("skipped: no docs/io.md in the current folder");
    }
    for (int D : {64, 128}) {
        for (int N : {128, 256, 512}) {
            Head head(N, D, ATTN_F16);
            const Bytes bytes = head.forward("emu:gfx942"), more = head.standard_way(chip, code);
            const std::string row = table_row(head, bytes, more);
            INFO(row);
            // S and P, in f16, written and read; without LSE.
            CHECK(more.all() ==
                  head.formula() - (uint64_t)N * 4 + 4 * (uint64_t)N * (uint64_t)N * 2);
            CHECK((page.empty() || page.find(row) != std::string::npos));
        }
    }
}
