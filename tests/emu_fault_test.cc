// emu_fault_test.cc: the emulator sees faults: tiny kernels that are right in every order, and the
// same kernels with one fault planted, each of which must be reported or give another result.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <array>
#include <cstring>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

enum { THREADS = 64, TILES = 5, ROWS = TILES * THREADS - 7, SHARED = 2 * 1024 };

// Tiles of 64 rows of 16 bytes go through two stages; a thread adds up the row of a thread of the
// other warp in each. Rows from n on are 0. The sum of a pair of lanes goes out.
const char *const pipeline = R"(
#define STAGE(i) ((u32)((i) % 2) * 1024)
DEV void NAME_begin(const args *p, int tile) {
    const int row = tile * 64 + thread_id();
    cp_async_16(STAGE(tile) + 16 * thread_id(), p->in + 16 * row, row < p->n ? 16 : 0);
}
DEV void NAME_body(const args *p) {
    const int t = thread_id();
    float sum = 0;
    NAME_begin(p, 0);
    cp_async_commit();
    for (int i = 0; i < 5; i++) {
        if (i + 1 < 5) { NAME_begin(p, i + 1); }
        cp_async_commit();
        cp_async_wait(1);
        block_sync(); /* landed */
        for (int j = 0; j < 4; j++) {
            sum += float_of(shared_load_u32(STAGE(i) + 16 * (63 - t) + 4 * j));
        }
        block_sync(); /* read */
    }
    sum += lane_xor(sum, 1);
    store_u32(p->out + 4 * t, bits_of(sum));
}
ATTN_ENTRY(NAME, NAME_body, args)
)";

struct Fault {
    const char *name, *from, *to;
    const char *sentence; // that must be in it; NULL: the result differs
};
const Fault faults[] = {
    {"right", "", "", ""},
    {"no_barrier_before", "block_sync(); /* landed */", "", "shared memory"},
    {"no_barrier_after", "block_sync(); /* read */", "", "shared memory"},
    {"no_wait", "cp_async_wait(1);", "", "where a copy is on its way"},
    {"short_wait", "cp_async_wait(1)", "cp_async_wait(2)", "where a copy is on its way"},
    {"no_commit", "cp_async_commit();\n        cp_async_wait", "cp_async_wait",
     "where a copy is on its way"},
    {"stage_load", "cp_async_16(STAGE(tile)", "cp_async_16(STAGE(tile + 1)", "shared memory"},
    {"stage_read", "u32(STAGE(i)", "u32(STAGE(i + 1)", "shared memory"},
    {"no_zero_fill", "row < p->n ? 16 : 0", "16", nullptr},
    {"zero_fill_early", "row < p->n ?", "row < p->n - 1 ?", nullptr},
    {"lane_swapped", "lane_xor(sum, 1)", "lane_xor(sum, 2)", nullptr},
    {"lane_outside", "lane_xor(sum, 1)", "lane_xor(sum, 32)", "a warp has 32 lanes"},
    {"row_outside", "(63 - t)", "(64 - t)", "shared memory"},
    {"row_far_outside", "(63 - t)", "(1163 - t)", "the block has 2048"},
    {"word_misaligned", "+ 4 * j", "+ 4 * j + 2", "no multiple of it"},
    {"copy_misaligned", "STAGE(tile) + 16 * t", "STAGE(tile) + 8 + 16 * t", "no multiple of it"},
    {"source_misaligned", "p->in + 16", "p->in + 8 + 16", "no multiple of it"},
    {"too_many_bytes", "? 16 : 0", "? 17 : 0", "17 of 16 bytes"},
    {"store_misaligned", "p->out + 4 * t", "p->out + 2 + 4 * t", "no multiple of it"},
    {"store_nowhere", "p->out + 4 * t", "4 * t", "nothing is there"},
    {"barrier_divergent", "block_sync(); /* read */", "if (t != 9 || i < 4) { block_sync(); }",
     "for ever, since thread"},
    {"exit_early", "float sum = 0;", "float sum = 0; if (t == 40) { return; }",
     "for ever, since thread 40 has ended"},
    {"meeting_divergent", "sum += lane_xor(sum, 1);",
     "if (t == 3) { warp_sync(); } else { sum += lane_xor(sum, 1); }", "of its warp at"},
    {"exit_before_meeting", "sum += lane_xor(sum, 1);",
     "if (t == 3) { return; } sum += lane_xor(sum, 1);", "waits at lane_xor for ever"},
    {"never_written", "u32(STAGE(i) + 16", "u32(1024 - STAGE(i) + 16", "shared memory"},
};

// All kernels in one text, since a compile takes longer than all else.
std::string all_of(const char *base) {
    std::string text;
    for (const Fault &f : faults) {
        text += "#undef STAGE\n" + emu::replaced(emu::replaced(base, f.from, f.to), "NAME", f.name);
    }
    return text;
}

struct Run {
    int status;
    std::string error;
    std::vector<float> out;
};

struct Pipeline {
    emu::Chip chip{"emu:sm_80"};
    emu::Code code{chip, all_of(pipeline)};
    // Rows of 16 bytes; a vector's memory is aligned to 16.
    std::vector<float> in = std::vector<float>(TILES * THREADS * 4);
    std::vector<float> right = std::vector<float>(THREADS);

    Pipeline() {
        std::vector<float> sum(THREADS);
        for (size_t i = 0; i < in.size(); i++) {
            in[i] = static_cast<float>(i * 37 % 101);
        }
        for (size_t row = 0; row < ROWS; row++) {
            for (size_t j = 0; j < 4; j++) {
                sum[63 - row % 64] += in[row * 4 + j];
            }
        }
        for (size_t t = 0; t < THREADS; t++) {
            right[t] = sum[t] + sum[t ^ 1];
        }
    }
    Run run(const char *kernel, const std::string &options, int64_t blocks = 1) {
        const emu::Options set(options.c_str());
        Run r{0, "", std::vector<float>(THREADS + 1)};
        r.status = code.launch(kernel, {emu::Code::at(in), emu::Code::at(r.out), ROWS}, blocks,
                               THREADS, SHARED);
        r.error = r.status < 0 ? attn_error() : "";
        r.out.resize(THREADS);
        return r;
    }
};

Pipeline &the_pipeline() {
    static Pipeline p;
    return p;
}

const char *const orders[] = {"order=ascending", "order=descending", "order=random,seed=1",
                              "order=random,seed=2"};

} // namespace

TEST_CASE("a right kernel has one result in every order", "[emu]") {
    NEEDS_CC();
    for (const char *order : orders) {
        for (const char *async : {"async=late", "async=early", "async=random"}) {
            const Run r = the_pipeline().run("right", std::string(order) + "," + async, 9);
            INFO(order << " " << async << " " << r.error);
            CHECK(r.status == ATTN_OK);
            CHECK(r.out == the_pipeline().right);
        }
    }
}

TEST_CASE("each planted fault is caught in every order", "[emu]") {
    NEEDS_CC();
    for (const Fault &f : faults) {
        for (const char *order : orders) {
            const Run r = the_pipeline().run(f.name, std::string(order) + ",async=late");
            INFO(f.name << " " << order << ": " << r.error);
            if (!*f.name || std::string(f.name) == "right") {
                CHECK(r.status == ATTN_OK);
            } else if (f.sentence) {
                CHECK(r.status == ATTN_DRIVER);
                CHECK(r.error.find(f.sentence) != std::string::npos);
                CHECK(r.error.find(std::string("kernel ") + f.name + ", block 0, thread ") == 0);
            } else {
                CHECK(r.status == ATTN_OK);
                CHECK(r.out != the_pipeline().right);
            }
        }
    }
}

// Two warps and a word that thread 0 wrote before a barrier. Then, without one, each does a thing.
TEST_CASE("races are seen, whoever comes first", "[emu]") {
    NEEDS_CC();
    const auto kernel = [](const char *name, const char *first, const char *second) {
        return std::string("DEV void ") + name +
               "_body(const args *p) { const int t = thread_id();"
               " (void)p; if (t == 0) { shared_store_u32(0, 1); } block_sync(); if (t == 0) { " +
               first + "; } if (t >= 32) { " + second + "; } }\nATTN_ENTRY(" + name + ", " + name +
               "_body, args)\n";
    };
    const char *const write = "shared_store_u32(0, 2)", *const read = "shared_load_u32(0)";
    emu::Chip chip("emu:sm_80");
    emu::Code code(chip, kernel("write_read", write, read) + kernel("read_write", read, write) +
                             kernel("write_write", write, write) +
                             kernel("write_byte_read", "shared_store_u16(2, 3)", read) +
                             kernel("read_read", read, read) +
                             kernel("apart", write, "shared_store_u32(4, 2)"));
    struct Want {
        const char *name, *ascending, *descending;
    };
    for (const Want &w :
         {Want{"write_read", "thread 32 reads shared memory at 0, which warp 0 wrote without",
               "thread 0 writes shared memory at 0, which warp 1 read without"},
          Want{"read_write", "thread 32 writes shared memory at 0, which warp 0 read without",
               "thread 0 reads shared memory at 0, which warp 1 wrote without"},
          Want{"write_write", "thread 32 writes shared memory at 0, which warp 0 wrote without",
               "thread 0 writes shared memory at 0, which warp 1 wrote without"},
          Want{"write_byte_read", "thread 32 reads shared memory at 0, which warp 0 wrote without",
               "thread 0 writes shared memory at 0, which warp 1 read without"},
          Want{"read_read", nullptr, nullptr}, Want{"apart", nullptr, nullptr}}) {
        for (const bool up : {true, false}) {
            const emu::Options options(up ? "order=ascending" : "order=descending");
            const char *const sentence = up ? w.ascending : w.descending;
            INFO(w.name << (up ? " ascending" : " descending"));
            CHECK(code.launch(w.name, {}, 1, THREADS, 8) == (sentence ? ATTN_DRIVER : ATTN_OK));
            CHECK((!sentence || std::string(attn_error()).find(sentence) != std::string::npos));
        }
    }
}

// Lane l writes word l and reads word l ^ 1, then writes it.
TEST_CASE("lanes of a warp need warp_sync", "[emu]") {
    NEEDS_CC();
    const std::string text = R"(
DEV void NAME_body(const args *p) {
    const u32 t = thread_id();
    shared_store_u32(4 * t, 0);
    block_sync();
    shared_store_u32(4 * t, t);
    warp_sync(); /* written */
    const u32 x = shared_load_u32(4 * (t ^ 1));
    warp_sync(); /* read */
    shared_store_u32(4 * t, x + 1);
    shared_store_u16(4 * t, x);
    warp_sync(); /* written again */
    u32 m[4];
    ldmatrix_x4(m, 16 * (t / 32 * 8 + t % 8));
    shared_store_u32(4 * t, m[0]);
    (void)p;
}
ATTN_ENTRY(NAME, NAME_body, args)
)";
    struct Want {
        const char *name, *from, *sentence;
    };
    const Want wants[] = {{"with", "", nullptr},
                          {"reads", "warp_sync(); /* written */", "of its warp"},
                          {"writes", "warp_sync(); /* read */", "of its warp"},
                          {"meets", "warp_sync(); /* written again */", "of its warp wrote"}};
    std::string all;
    for (const Want &w : wants) {
        all += emu::replaced(emu::replaced(text, w.from, ""), "NAME", w.name);
    }
    emu::Chip chip("emu:sm_80");
    emu::Code code(chip, all);
    for (const Want &w : wants) {
        for (const char *order : orders) {
            const emu::Options options(order);
            INFO(w.name << " " << order);
            CHECK(code.launch(w.name, {}, 1, THREADS, 256) == (w.sentence ? ATTN_DRIVER : ATTN_OK));
            CHECK((!w.sentence || std::string(attn_error()).find(w.sentence) != std::string::npos));
        }
    }
}

TEST_CASE("every block runs once", "[emu]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_80");
    emu::Code code(chip, "DEV void once_body(const args *p) { const u64 at = p->out + 4 * "
                         "(u64)block_id(); if (thread_id() == 0) { store_u32(at, load_u32(at) + "
                         "(u32)grid_size()); } }\nATTN_ENTRY(once, once_body, args)\n");
    for (const char *order : orders) {
        const emu::Options options(order);
        for (const uint32_t n : {1u, 2u, 6u, 97u, 1000u}) {
            std::vector<uint32_t> out(n);
            INFO(order << " " << n << " blocks");
            REQUIRE(code.launch("once", {0, emu::Code::at(out), 0}, n) == ATTN_OK);
            CHECK(out == std::vector<uint32_t>(n, n));
        }
    }
}

TEST_CASE("several threads launch at once", "[emu]") {
    NEEDS_CC();
    Pipeline &p = the_pipeline();
    std::vector<std::thread> threads;
    std::array<int, 4> good{};
    for (size_t i = 0; i < good.size(); i++) {
        threads.emplace_back([&p, &good, i] { // one in two has a fault
            const char *const name = i % 2 ? "exit_early" : "right";
            for (int n = 0; n < 5; n++) {
                std::vector<float> out(THREADS);
                const emu::Args args = {emu::Code::at(p.in), emu::Code::at(out), ROWS};
                const int status = p.code.launch(name, args, 3, THREADS, SHARED);
                good[i] += i % 2 ? status == ATTN_DRIVER &&
                                       std::strstr(attn_error(), "exit_early") != nullptr
                                 : status == ATTN_OK && out == p.right;
            }
        });
    }
    for (std::thread &t : threads) {
        t.join();
    }
    CHECK(good == std::array<int, 4>{5, 5, 5, 5});
}

TEST_CASE("a launch after one that failed is whole", "[emu]") {
    NEEDS_CC();
    CHECK(the_pipeline().run("exit_early", "").status == ATTN_DRIVER);
    CHECK(the_pipeline().run("right", "").out == the_pipeline().right);
}

TEST_CASE("what no launch can have is refused", "[emu]") {
    NEEDS_CC();
    emu::Code &code = the_pipeline().code;
    CHECK(code.launch("right", {}, 1, 40, 0) == ATTN_INVALID);   // no whole warps
    CHECK(code.launch("right", {}, 1, 2048, 0) == ATTN_INVALID); // too many threads
    CHECK(code.launch("right", {}, 1, 32, 164 << 10) == ATTN_DRIVER);
    CHECK(code.launch("nobody", {}, 1, 32, 0) == ATTN_DRIVER);
    for (const char *wrong : {"order=", "order=up", "asyn=late", "seed=x", "count"}) {
        const emu::Options options(wrong);
        INFO(wrong);
        CHECK(code.launch("right", {}, 1, 32, 0) == ATTN_INVALID);
        CHECK(std::string(attn_error()).find(wrong) != std::string::npos);
    }
    attn__chip *chip = nullptr;
    CHECK(attn__emu.open("emu:sm_10", &chip) == ATTN_DEVICE);
    attn__module *module = nullptr;
    CHECK(attn__emu.load(the_pipeline().chip.chip, "nonsense", 8, &module) == ATTN_DRIVER);
    CHECK(module == nullptr);
}

// -- What is counted ------------------------------------------------------------------------------

TEST_CASE("bytes, barriers and bank conflicts are counted", "[emu]") {
    NEEDS_CC();
    Pipeline &p = the_pipeline();
    REQUIRE(p.run("right", "", 3).status == ATTN_OK);
    const attn__emu_counts counts = p.chip.last();
    CHECK(counts.load_bytes == 3 * ROWS * 16);
    CHECK(counts.store_bytes == 3 * THREADS * 4);
    CHECK(counts.barriers == 3 * 2 * TILES);
    CHECK(counts.matrix_ops == 0);
    // Words 16 bytes apart: 32 lanes on 8 banks, so 4 cycles each.
    CHECK(counts.shared_access == 3 * 2 * TILES * 4);
    CHECK(counts.shared_cycles == 4 * counts.shared_access);
}

TEST_CASE("banks, by hand", "[emu]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_80");
    // Lane l stores in shared memory at STEP * l + l / GROUP * MORE, `BYTES` wide.
    const auto kernel = [](const char *name, const char *at, const char *call) {
        return std::string("DEV void ") + name +
               "_body(const args *p) { const u32 l = thread_id();"
               " const b128 x = {{0, 0, 0, 0}}; (void)p; (void)x; " +
               call + "(" + at + ", " + (std::strstr(call, "b128") ? "x" : "0") +
               "); warp_sync(); }\nATTN_ENTRY(" + name + ", " + name + "_body, args)\n";
    };
    emu::Code code(chip, kernel("words", "4 * l", "shared_store_u32") +
                             kernel("two_way", "8 * l", "shared_store_u32") +
                             kernel("all_one_bank", "128 * l", "shared_store_u32") +
                             kernel("same_word", "l % 2 * 4", "shared_store_u32") +
                             kernel("rows_of_64", "64 * l", "shared_store_b128") +
                             kernel("dense", "16 * l", "shared_store_b128") +
                             kernel("rows_of_144", "144 * l", "shared_store_b128") +
                             kernel("halves", "2 * l", "shared_store_u16"));
    struct Want {
        const char *name;
        uint64_t least, cycles;
    };
    for (const Want &w : {Want{"words", 1, 1}, Want{"two_way", 1, 2}, Want{"all_one_bank", 1, 32},
                          Want{"same_word", 1, 1}, Want{"rows_of_64", 4, 16}, Want{"dense", 4, 4},
                          Want{"rows_of_144", 4, 4}, Want{"halves", 1, 1}}) {
        INFO(w.name);
        REQUIRE(code.launch(w.name, {}, 1, 32, 8192) == ATTN_OK);
        CHECK(chip.last().shared_access == w.least);
        CHECK(chip.last().shared_cycles == w.cycles);
    }
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("device memory outside of an allocation ends the program", "[emu]") {
    NEEDS_CC();
    emu::Chip chip("emu:sm_80");
    emu::Code code(chip, "DEV void past_body(const args *p) { store_u32(p->out, load_u32(p->in + "
                         "4 * p->n)); }\nATTN_ENTRY(past, past_body, args)\n");
    for (const int n : {9, 10}) {
        const pid_t child = fork();
        if (child == 0) {
            void *in = nullptr;
            uint32_t out;
            close(2);
            attn__emu.alloc(chip.chip, 40, &in);
            code.launch("past",
                        {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(&out), n});
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) == (n == 9));
    }
}
#endif
