// emu_sm90_fault_test.cc: the emulator sees the faults that kernels for sm_90a can have: a small
// kernel of a loading and two multiplying groups that is right in every order, and the same with
// one fault planted, each of which must be reported or give another result.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "emu_host.h"

#include <cstring>
#include <memory>
#include <vector>

namespace {

enum { BLOCKS = 5, KEYS = BLOCKS * 64, ROWS = 128, SHARED = 50176 + 8192, THREADS = 384 };

// Group 0 loads, groups 1 and 2 have 64 rows each: o += (q k') v for 5 blocks of 64 keys, in two
// stages; the two take turns at q k'. Numbers are small integers, so all sums are exact.
const char *const producer = R"(
#undef STAGE_K
#undef STAGE_V
#undef BAR
#undef FULL
#undef EMPTY
#define STAGE_K(i) ((u32)(16384 + (i) % 2 * 16384))
#define STAGE_V(i) (STAGE_K(i) + 8192)
#define BAR (u32)(16384 + 4 * 8192)
#define FULL(i) (BAR + (u32)((i) % 2) * 8)
#define EMPTY(i) (BAR + 16 + (u32)((i) % 2) * 8)
DEV void NAME_load(const args *p) {
    const tensor_map *const map = (const tensor_map *)p->in;
    mbarrier_expect(BAR + 32, 16384);
    tensor_load_4d(0, map, BAR + 32, 0, 0, 0, 0);
    for (int i = 0; i < p->n; i++) {
        mbarrier_wait(EMPTY(i), (u32)(i / 2 & 1) ^ 1); /* free */
        mbarrier_expect(FULL(i), 16384);
        tensor_load_4d(STAGE_K(i), map + 1, FULL(i), 0, 64 * i, 0, 0);
        tensor_load_4d(STAGE_V(i), map + 2, FULL(i), 0, 64 * i, 0, 0);
    }
}
DEV void NAME_body(const args *p) {
    const int t = thread_id(), group = group_id();
    if (t == 0) {
        mbarrier_init(FULL(0), 1);
        mbarrier_init(FULL(1), 1);
        mbarrier_init(EMPTY(0), 8);
        mbarrier_init(EMPTY(1), 8);
        mbarrier_init(BAR + 32, 1);
        mbarrier_init_fence();
    }
    block_sync(); /* barriers */
    if (group == 0) {
        regs_less(40);
        if (t == 0) { NAME_load(p); }
        return;
    }
    regs_more(232);
    float x[16], y[16], ox[16], oy[16];
    u32 a[16];
    for (int i = 0; i < 16; i++) { ox[i] = oy[i] = 0; }
    if (group == 2) { named_arrive(1, 256); }
    mbarrier_wait(BAR + 32, 0); /* q */
    for (int i = 0; i < p->n; i++) {
        mbarrier_wait(FULL(i), (u32)(i / 2 & 1)); /* full */
        named_sync(group, 256); /* turn */
        wgmma_fence(); /* s */
        for (u32 k = 0; k < 4; k++) {
            wgmma_64x64x16_ss_f16(x, y, wgmma_desc((u32)(group - 1) * 8192 + 32 * k, 16, 1024),
                                  wgmma_desc(STAGE_K(i) + 32 * k, 16, 1024), k > 0);
        }
        wgmma_commit(); /* s */
        named_arrive(3 - group, 256); /* turn */
        wgmma_wait(0); /* s */
        for (int j = 0; j < 4; j++) {
            a[4 * j] = pack_f16(x[4 * j], x[4 * j + 1]);
            a[4 * j + 1] = pack_f16(y[4 * j], y[4 * j + 1]);
            a[4 * j + 2] = pack_f16(x[4 * j + 2], x[4 * j + 3]);
            a[4 * j + 3] = pack_f16(y[4 * j + 2], y[4 * j + 3]);
        }
        wgmma_fence(); /* o */
        for (u32 j = 0; j < 4; j++) {
            wgmma_64x64x16_rs_f16(ox, oy, a + 4 * j, wgmma_desc(STAGE_V(i) + 2048 * j, 16, 1024));
        }
        wgmma_commit(); /* o */
        wgmma_wait(0); /* o */
        if (lane_id() == 0) { mbarrier_arrive(EMPTY(i)); }
    }
    const u64 at = p->out + 256 * ((u64)(t - 128) / 32 * 16 + (u64)lane_id() / 4) +
                   8 * ((u64)lane_id() % 4);
    for (u32 i = 0; i < 16; i++) {
        store_u32(at + i / 2 * 32 + i % 2 * 4, bits_of(ox[i]));
        store_u32(at + 8 * 256 + i / 2 * 32 + i % 2 * 4, bits_of(oy[i]));
    }
}
ATTN_ENTRY(NAME, NAME_body, args)
)";

struct Fault {
    const char *name, *from, *to;
    const char *sentence;   // that must be in it; NULL: the result differs or there is any
    const char *early = ""; // the same for async=early; "": whatever
};
const char *const never = "for ever";
const Fault faults[] = {
    {"right", "", "", ""},
    // Waits.
    {"no_full_wait", "mbarrier_wait(FULL(i), (u32)(i / 2 & 1)); /* full */", "",
     "multiplies shared memory at", "without a wait"},
    {"no_q_wait", "mbarrier_wait(BAR + 32, 0); /* q */", "", "where a copy is on its way",
     ", without a wait"},
    {"no_free_wait", "mbarrier_wait(EMPTY(i), (u32)(i / 2 & 1) ^ 1); /* free */", "", nullptr,
     "without a wait"},
    {"full_parity", "(u32)(i / 2 & 1)); /* full */", "(u32)(i / 2 & 1) ^ 1); /* full */", nullptr},
    {"free_parity", "(u32)(i / 2 & 1) ^ 1); /* free */", "(u32)(i / 2 & 1)); /* free */", never},
    {"no_second_parity", "(u32)(i / 2 & 1)); /* full */", "0); /* full */", nullptr},
    {"stage_of_wait", "mbarrier_wait(FULL(i)", "mbarrier_wait(FULL(i + 1)", nullptr, nullptr},
    {"no_loop", "mbarrier_wait(FULL(i), (u32)(i / 2 & 1)); /* full */",
     "mbarrier_try_wait(FULL(i), (u32)(i / 2 & 1)); /* full */", nullptr},
    // Counts.
    {"count_too_low", "mbarrier_init(EMPTY(1), 8)", "mbarrier_init(EMPTY(1), 7)", nullptr, nullptr},
    {"count_too_high", "mbarrier_init(EMPTY(1), 8)", "mbarrier_init(EMPTY(1), 9)", never, never},
    {"full_count", "mbarrier_init(FULL(0), 1)", "mbarrier_init(FULL(0), 2)", never, never},
    {"all_lanes_arrive", "if (lane_id() == 0) { mbarrier", "{ mbarrier", nullptr, nullptr},
    {"bytes_too_many", "mbarrier_expect(FULL(i), 16384)", "mbarrier_expect(FULL(i), 16512)",
     "arrivals, 128 bytes", "arrivals, 128 bytes"},
    {"bytes_too_few", "mbarrier_expect(FULL(i), 16384)", "mbarrier_expect(FULL(i), 8192)", nullptr},
    {"no_expect", "mbarrier_expect(FULL(i), 16384);", "", never, never},
    {"no_arrival", "if (lane_id() == 0) { mbarrier_arrive(EMPTY(i)); }", "", never, never},
    {"arrives_early", "wgmma_wait(0); /* o */\n",
     "if (lane_id() == 0) { mbarrier_arrive(EMPTY(i)); } wgmma_wait(0); continue;",
     "may still read", "may still read"},
    // Initialisation.
    {"no_init_fence", "mbarrier_init_fence();", "", "behind whose init is no fence"},
    {"no_init_barrier", "block_sync(); /* barriers */", "", "mbarrier at", "mbarrier at"},
    {"init_twice", "mbarrier_init(FULL(1), 1)",
     "mbarrier_init(FULL(1), 1), mbarrier_init(FULL(1), 1)", "where a barrier is"},
    {"no_such_barrier", "mbarrier_arrive(EMPTY(i))", "mbarrier_arrive(EMPTY(i) + 24)",
     "where none was initialised"},
    {"barrier_overwritten", "float x[16]", "shared_store_u32(BAR, 0); float x[16]",
     "where a barrier is"},
    // Products.
    {"no_fence_s", "wgmma_fence(); /* s */", "", "since the last wgmma_fence",
     "since the last wgmma_fence"},
    {"no_fence_o", "wgmma_fence(); /* o */", "", "behind wgmma_fence", "behind wgmma_fence"},
    {"o_behind_fence", "wgmma_fence(); /* o */", "wgmma_fence(); ox[3] += (float)(i > 1);",
     "changed behind wgmma_fence"},
    {"no_commit_s", "wgmma_commit(); /* s */", "", nullptr, nullptr},
    {"no_commit_o", "wgmma_commit(); /* o */", "", "may still read", "may still read"},
    {"no_wait_s", "wgmma_wait(0); /* s */", "", nullptr, nullptr},
    {"short_wait_s", "wgmma_wait(0); /* s */", "wgmma_wait(1);", nullptr, nullptr},
    {"no_wait_o", "wgmma_wait(0); /* o */", "", "may still read", "may still read"},
    {"d_changed", "wgmma_wait(0); /* o */", "oy[0] += 1; wgmma_wait(0);",
     "changed d of a product before it waited", "changed d of a product before it waited"},
    {"d_read", "wgmma_wait(0); /* o */", "const float old = ox[5]; wgmma_wait(0); ox[5] = old;",
     nullptr, nullptr},
    {"a_changed", "wgmma_wait(0); /* o */", "a[5] ^= 1; wgmma_wait(0);",
     "changed a of a product before it waited", "changed a of a product before it waited"},
    {"group_differs", "(u32)(group - 1) * 8192", "(u32)(t / 32 % 4 / 3) * 8192",
     "otherwise than its group", "otherwise than its group"},
    {"one_warp_less", "regs_more(232);", "regs_more(232); if (t / 32 == 7) { return; }", nullptr,
     nullptr},
    {"never_waits", "wgmma_wait(0); /* o */", "if (i < p->n - 1) { wgmma_wait(0); }", nullptr,
     nullptr},
    // Places.
    {"stride", "STAGE_K(i) + 32 * k, 16, 1024)", "STAGE_K(i) + 32 * k, 16, 512)", nullptr, nullptr},
    {"stride_of_v", "2048 * j, 16, 1024)", "2048 * j, 16, 2048)", nullptr, nullptr},
    {"step", "STAGE_K(i) + 32 * k", "STAGE_K(i) + 64 * k", nullptr, nullptr},
    {"middle", "STAGE_K(i) + 32 * k", "STAGE_K(i) + 128 * k", "in the middle of 8 rows"},
    {"swizzle", "wgmma_desc(STAGE_K(i) + 32 * k, 16, 1024)",
     "(wgmma_desc(STAGE_K(i) + 32 * k, 16, 1024) ^ (u64)3 << 62)", nullptr, nullptr},
    {"stage_of_k", "wgmma_desc(STAGE_K(i)", "wgmma_desc(STAGE_K(i + 1)", nullptr, nullptr},
    {"outside", "(u32)(group - 1) * 8192", "(u32)(group + 7) * 8192", "the block has"},
    {"place_of_box", "tensor_load_4d(STAGE_K(i)", "tensor_load_4d(STAGE_K(i) + 512",
     "no multiple of 1024"},
    {"box_outside", "tensor_load_4d(STAGE_V(i)", "tensor_load_4d(STAGE_V(i) + 16384", nullptr,
     nullptr},
    {"both_at_one", "tensor_load_4d(STAGE_V(i)", "tensor_load_4d(STAGE_K(i)",
     "where a copy is on its way"},
    {"box_left", "mbarrier_wait(EMPTY(i)",
     "if (i == 4) { tensor_load_4d(50176, map + 1, BAR + 32, 0, 0, 0, 0); } mbarrier_wait(EMPTY(i)",
     "ends with a copy to shared memory at 50176"},
    {"row_of_box", "64 * i, 0, 0);\n    }", "64 * i + 1, 0, 0);\n    }", nullptr, nullptr},
    // Groups.
    {"no_turn", "if (group == 2) { named_arrive(1, 256); }", "", never, never},
    {"turn_of_others", "named_arrive(3 - group, 256)", "named_arrive(group, 256)", nullptr,
     nullptr},
    {"turn_threads", "named_arrive(3 - group, 256)", "named_arrive(3 - group, 128)", nullptr,
     nullptr},
    {"turn_number", "named_sync(group, 256)", "named_sync(group + 15, 256)", "1..15"},
    {"registers_odd", "regs_more(232)", "regs_more(236)", "multiples of 8"},
    {"registers_fewer", "regs_more(232)", "regs_more(160)", "asks for more"},
    {"registers_too_many", "regs_more(232)", "regs_more(248)", "too few are free"},
    {"registers_of_three", "regs_less(40);", "if (t / 32 < 3) { regs_less(40); }",
     "too few are free"},
    {"registers_of_others", "regs_less(40);",
     "if (t / 32) { regs_less(40); } else { regs_less(32); }", "has set its registers"},
};

std::string all_of(const char *base) {
    std::string text = "#include \"isa/ptx_sm90.h\"\n";
    for (const Fault &f : faults) {
        text += emu::replaced(emu::replaced(base, f.from, f.to), "NAME", f.name);
    }
    return text;
}

struct alignas(64) Map {
    uint64_t word[16];
};

struct Run {
    int status;
    std::string error;
    std::vector<float> out;
};

struct Producer {
    emu::Chip chip{"emu:sm_90a"};
    emu::Code code{chip, all_of(producer)};
    std::vector<uint16_t> q, k, v;
    std::vector<float> right = std::vector<float>(ROWS * 64);
    Map map[3];

    static std::vector<uint16_t> tensor(int rows, int seed, std::vector<int> *x) {
        std::vector<uint16_t> t(static_cast<size_t>(rows) * 64);
        for (size_t i = 0; i < t.size(); i++) {
            const size_t draw = (i * 2654435761u + static_cast<size_t>(seed)) >> 7;
            x->push_back(static_cast<int>(draw % 3) - 1);
            t[i] = attn__f32_to_f16(static_cast<float>(x->back()));
        }
        return t;
    }
    void describe(int i, const std::vector<uint16_t> &t, int rows, int box) {
        const attn__boxes b = {ATTN_F16, t.data(), {64, rows, 1, 1}, {128, 0, 0}, {64, box, 1, 1}};
        REQUIRE(attn__emu.describe(chip.chip, &b, map[i].word) == 1);
    }
    Producer() {
        std::vector<int> iq, ik, iv;
        q = tensor(ROWS, 1, &iq);
        k = tensor(KEYS, 2, &ik);
        v = tensor(KEYS, 3, &iv);
        describe(0, q, ROWS, 128);
        describe(1, k, KEYS, 64);
        describe(2, v, KEYS, 64);
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t j = 0; j < KEYS; j++) {
                int s = 0;
                for (size_t d = 0; d < 64; d++) {
                    s += iq[i * 64 + d] * ik[j * 64 + d];
                }
                for (size_t d = 0; d < 64; d++) {
                    right[i * 64 + d] += static_cast<float>(s * iv[j * 64 + d]);
                }
            }
        }
    }
    Run run(const char *kernel, const std::string &options, int64_t blocks = 1) {
        const emu::Options set(options.c_str());
        Run r{0, "", std::vector<float>(ROWS * 64)};
        const emu::Args args = {reinterpret_cast<uint64_t>(map), emu::Code::at(r.out), BLOCKS};
        r.status = code.launch(kernel, args, blocks, THREADS, SHARED);
        r.error = r.status < 0 ? attn_error() : "";
        return r;
    }
};

Producer &the_producer() {
    static Producer p;
    return p;
}

const char *const orders[] = {"order=ascending", "order=descending", "order=random,seed=1",
                              "order=random,seed=2"};

void check(const Fault &f, const std::string &options, const char *sentence) {
    const Run r = the_producer().run(f.name, options);
    INFO(f.name << " " << options << ": " << r.error);
    if (!sentence) {
        CHECK((r.status == ATTN_DRIVER || r.out != the_producer().right));
    } else if (*sentence) {
        CHECK(r.status == ATTN_DRIVER);
        CHECK(r.error.find(sentence) != std::string::npos);
        CHECK(r.error.find(std::string("kernel ") + f.name + ", block 0, thread ") == 0);
    }
}

// A kernel with a fault in it, and a part of the sentence that names it; nullptr: it has none.
struct Want {
    const char *name, *from, *to, *sentence;
};

void judge(const std::string &text, const std::vector<Want> &wants, int threads, int shared,
           uint64_t in = 0) {
    std::string all = "#include \"isa/ptx_sm90.h\"\n";
    for (const Want &w : wants) {
        all += emu::replaced(emu::replaced(text, w.from, w.to), "NAME", w.name);
    }
    emu::Chip chip("emu:sm_90a");
    emu::Code code(chip, all);
    for (const Want &w : wants) {
        for (const char *order : orders) {
            const emu::Options options(order);
            INFO(w.name << " " << order);
            const int status = code.launch(w.name, {in, 0, 0}, 1, threads, shared);
            INFO(attn_error());
            CHECK(status == (w.sentence ? ATTN_DRIVER : ATTN_OK));
            CHECK((!w.sentence || std::strstr(attn_error(), w.sentence) != nullptr));
        }
    }
}

} // namespace

TEST_CASE("a right kernel of groups has one result in every order", "[sm90]") {
    NEEDS_CC();
    for (const char *order : orders) {
        for (const char *async : {"async=late", "async=early", "async=random"}) {
            const Run r = the_producer().run("right", std::string(order) + "," + async, 3);
            INFO(order << " " << async << " " << r.error);
            CHECK(r.status == ATTN_OK);
            CHECK(r.out == the_producer().right);
        }
    }
    const attn__emu_counts counts = the_producer().chip.last();
    CHECK(counts.load_bytes == 3 * 2 * 64 * (ROWS + 2 * KEYS));
    CHECK(counts.flops == 3 * 2ull * 2 * ROWS * KEYS * 64);
    CHECK(counts.shared_cycles == counts.shared_access);
}

TEST_CASE("each fault of groups is caught in every order", "[sm90]") {
    NEEDS_CC();
    for (const Fault &f : faults) {
        for (const char *order : orders) {
            if (std::strcmp(f.name, "right") != 0) {
                check(f, std::string(order) + ",async=late", f.sentence);
                check(f, std::string(order) + ",async=early", f.early);
            }
        }
    }
}

// Group 0 writes a, 64 rows of 128 bytes, as ordinary words; then it is multiplied with itself.
TEST_CASE("what ordinary stores wrote needs a proxy fence", "[sm90]") {
    NEEDS_CC();
    const std::string text = R"(
DEV void NAME_body(const args *p) {
    const u32 t = (u32)thread_id();
    float x[16], y[16];
    for (u32 i = t; i < 2048; i += 128) { shared_store_u32(4 * i, 0x3c003c00); }
    proxy_fence();
    block_sync(); /* written */
    wgmma_fence();
    wgmma_64x64x16_ss_f16(x, y, wgmma_desc(0, 16, 1024), wgmma_desc(0, 16, 1024), 0);
    wgmma_commit();
    wgmma_wait(0);
    block_sync(); /* read */
    shared_store_u32(4 * t, t);
    if (x[3] != 16 || y[15] != 16) { store_u32(0, 0); }
    (void)p;
}
ATTN_ENTRY(NAME, NAME_body, args)
)";
    const std::vector<Want> wants = {
        {"with", "", "", nullptr},
        {"without", "proxy_fence();", "", "with no proxy_fence in between"},
        {"behind", "proxy_fence();\n    block_sync(); /* written */",
         "block_sync(); proxy_fence();", "with no proxy_fence in between"},
        {"of_one", "proxy_fence();", "if (t != 77) { proxy_fence(); }", "thread 77 wrote it"},
        {"before", "for (u32 i = t;", "proxy_fence(); for (u32 i = t;", nullptr},
        {"no_barrier", "block_sync(); /* written */", "", "without a barrier"},
        {"half", "i < 2048;", "i < 2000;", "nobody has written"},
        {"overwritten", "block_sync(); /* read */", "", "may still read"},
        {"left", "wgmma_wait(0);", "return;", "ends after 0 products of its group's 1"},
        {"again", "block_sync(); /* read */",
         "wgmma_64x64x16_ss_f16(x, y, wgmma_desc(0, 16, 1024), wgmma_desc(0, 16, 1024), 1);",
         "since the last wgmma_fence"},
    };
    judge(text, wants, 128, 8192);
}

// Group 0 writes a word, group 1 reads it and group 0 writes it again.
TEST_CASE("barriers by number order what is before and behind them", "[sm90]") {
    NEEDS_CC();
    const std::string text = R"(
DEV void NAME_body(const args *p) {
    const int t = thread_id(), n = 256, first = 128;
    if (group_id() == 0) {
        if (t == 0) { shared_store_u32(0, 7); }
        named_arrive(1, 256);
        named_sync(2, n);
        if (t == 0) { shared_store_u32(0, 8); }
    } else {
        named_sync(1, 256);
        const u32 x = shared_load_u32(0);
        if (x != 7) { store_u32(0, x); }
        if (t >= first) { named_arrive(2, n); }
    }
    (void)p;
}
ATTN_ENTRY(NAME, NAME_body, args)
)";
    const std::vector<Want> wants = {
        {"in_turn", "", "", nullptr},
        {"no_first", "named_sync(1, 256);", "named_arrive(1, 256);", "shared memory at 0"},
        {"no_second", "named_sync(2, n);", "named_arrive(2, n);", "shared memory at 0"},
        {"twice", "named_arrive(1, 256);", "named_arrive(1, 256); named_arrive(1, 256);",
         "arrives twice at barrier 1"},
        {"last_alone", "n = 256, first = 128", "n = 160, first = 224", "shared memory at 0"},
        {"never", "if (t >= first)", "if (t < first)",
         "waits at barrier 2 for 256 threads for ever"},
        {"lanes", "named_arrive(1, 256);", "named_arrive(1 + t % 2, 256);", "lane 0 at 1 for 256"},
    };
    judge(text, wants, 256, 64);
}

// Warp 0 writes 16 rows of 128 bytes, one lane stores them to rows 2.. of a tensor of 5 rows, 40
// columns and 2 heads; then warp 1 writes there.
TEST_CASE("a box is stored: what is inside of the tensor, and who waits for what", "[sm90]") {
    NEEDS_CC();
    const std::string text = R"(
DEV void NAME_body(const args *p) {
    const u32 t = (u32)thread_id();
    const tensor_map *const map = (const tensor_map *)p->in;
    for (u32 i = t; i < 512 && t < 32; i += 32) {
        const u32 row = i / 32, chunk = i / 4 % 8 ^ row % 8;
        shared_store_u32(1024 + row * 128 + chunk * 16 + i % 4 * 4, 0x10001 * 2 * i + 0x10000);
    }
    proxy_fence();
    block_sync(); /* written */
    if (t == 0) {
        tensor_store_4d(map, 1024, 0, 1, 2, 0);
        store_commit();
        store_wait_read();
    }
    block_sync(); /* read */
    if (t == 40) { shared_store_u32(1024 + 4 * 77, 5); }
}
ATTN_ENTRY(NAME, NAME_body, args)
)";
    alignas(16) static uint16_t data[6][2][48];
    std::fill(&data[0][0][0], &data[0][0][0] + sizeof data / 2, static_cast<uint16_t>(7));
    Map map{};
    {
        emu::Chip chip("emu:sm_90a");
        const attn__boxes b = {ATTN_F16, data, {40, 2, 5, 1}, {96, 192, 0}, {64, 1, 16, 1}};
        REQUIRE(attn__emu.describe(chip.chip, &b, map.word) == 1);
    }
    const std::vector<Want> wants = {
        {"with", "", "", nullptr},
        {"no_fence", "proxy_fence();", "", "with no proxy_fence in between"},
        {"fence_of_one", "proxy_fence();", "if (t != 5) { proxy_fence(); }", "thread 5 wrote it"},
        {"no_barrier", "block_sync(); /* written */", "", "shared memory at"},
        {"half", "i < 512", "i < 500", "nobody has written"},
        {"no_wait", "store_wait_read();", "", "which a copy may still read"},
        {"no_commit", "store_commit();", "", "which a copy may still read"},
        {"other_waits", "store_wait_read();\n    }", "}\n    if (t == 1) { store_wait_read(); }",
         "which a copy may still read"},
        {"no_order", "block_sync(); /* read */", "", "shared memory at 1332"},
        {"left", "store_wait_read();\n    }\n    block_sync(); /* read */", "}\n    return;",
         "ends with a store of shared memory at 1024"},
        {"place", "map, 1024,", "map, 1024 + 512,", "no multiple of 1024"},
        {"map", "map, 1024,", "(const tensor_map *)(p->in + 16), 1024,", "no multiple of 64"},
    };
    judge(text, wants, 64, 4096, reinterpret_cast<uint64_t>(&map));
    for (int row = 0; row < 6; row++) {
        for (int head = 0; head < 2; head++) {
            for (int i = 0; i < 48; i++) {
                const bool in = row >= 2 && row < 5 && head == 1 && i < 40;
                CHECK(data[row][head][i] == (in ? (row - 2) * 64 + i : 7));
            }
        }
    }
}
