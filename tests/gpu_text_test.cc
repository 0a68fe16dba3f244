// gpu_text_test.cc: a variant as text for chips, compiled by the host's compiler: scores and masks
// bit by bit against attn__op32, classes against every pair of their box.

#include <catch2/catch.hpp>

#include "variant_handle.h"

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <memory>

extern "C" {
#include "gpu_params.h"
#include "jit.h"
}

using namespace random_expr;

namespace {

std::string file_text(const std::string &name) {
    for (int i = 0; i < attn__n_kernel_files; i++) {
        if (name == attn__kernel_files[i].file.name) {
            return attn__kernel_files[i].file.text;
        }
    }
    FAIL("there is no " << name);
    return "";
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
    return text;
}

/* The types of score.h, as they stand there. */
std::string pair_and_box() {
    const std::string text = file_text("core/score.h");
    const size_t begin = text.find("typedef struct attn_pair"), end = text.find("} attn_box;");
    REQUIRE(begin < end);
    REQUIRE(end != std::string::npos);
    return text.substr(begin, end - begin) + "} attn_box;\n";
}

/* As pair_and_box has them: ints in this order. */
struct pair_of_ints {
    int b, h, q, k, i, nq, nk, nh, hk, batch;
};
struct box_of_ints {
    int b, h0, h1, q0, q1, i0, i1, k0, k1, nq, nk, nh, hk, batch;
};

/* The functions of isa/ptx.h that replace divisions, as they stand there. */
std::string quotients() {
    const std::string text = file_text("isa/ptx.h");
    const size_t begin = text.find("DEV float div_near");
    const size_t end = text.find("/* The lowest bit", begin);
    REQUIRE(begin < end);
    REQUIRE(end != std::string::npos);
    return text.substr(begin, end - begin);
}

std::string prelude() {
    return "#include \"core/types.h\"\n"
           "#define ATTN_WORDS 400\n"
           "#include \"core/params.h\"\n"
           "#define DEV static inline __attribute__((unused))\n"
           "#define EIGHTFOLD\n"
           "#define UNROLL\n"
           "#define ROLLED\n"
           "DEV u64 load_u64(u64 at) { return *(const u64 *)at; }\n"
           "DEV u32 bits_of(float x) { union { float f; u32 u; } v = {x}; return v.u; }\n"
           "DEV float float_of(u32 x) { union { u32 u; float f; } v = {x}; return v.f; }\n"
           "DEV float sqrt_f32(float x) { return __builtin_sqrtf(x); }\n"
           "DEV float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n"
           "DEV float abs_f32(float x) { return __builtin_fabsf(x); }\n"
           "DEV float apart(float a, float b, float c) { return a * b + c; }\n"
           "DEV float quotient(float x, float scale, float by, float inverse) {\n"
           "    return x * scale / by;\n"
           "}\n"
           "#define capped(x, scale, gain, cap, t) ((cap) * tanh_rule(t))\n"
           "DEV float rcp_fast(float x) { return float_of(bits_of(1 / x) + 1); }\n" // 1 ulp off
           "DEV u64 readable(const void *p) { return (u64)p; }\n"
           "DEV u32 load_u8(u64 at) { return *(const u8 *)at; }\n"
           "DEV u32 load_u16(u64 at) { return *(const u16 *)at; }\n"
           "DEV u32 load_u32(u64 at) { return *(const u32 *)at; }\n"
           "DEV float float_of_bf16(u32 x) { return float_of(x << 16); }\n"
           "DEV float float_of_f16(u32 x) {\n" // normal numbers and 0
           "    const u32 e = x >> 10 & 31, sign = (x & 0x8000) << 16;\n"
           "    return float_of(e ? sign | (e + 112) << 23 | (x & 1023) << 13 : sign);\n"
           "}\n"
           "#define tanh_rule(x) (vm_tanh_far(x) ? vm_tanh(x) : vm_tanh_fast(x))\n" +
           quotients() + pair_and_box();
}

/* What near.h does in place of the rules, as the rules have it. */
std::string as_rules(std::string text) {
    text = replaced(text, "fma_f32(", "apart(");
    text = replaced(text, "tanh_any(", "tanh_rule(");
    text = replaced(text, "tanh_near(", "tanh_rule(");
    text = replaced(text, "cap_any(", "capped(");
    return replaced(text, "div_scaled(", "quotient(");
}

/* Many variants in one shared object; function j is named after j. */
class compiled {
  public:
    explicit compiled(const std::vector<std::string> &sources) {
        char path[] = "/tmp/attn-text-XXXXXX";
        REQUIRE(mkdtemp(path));
        folder = path;
        REQUIRE(system(("mkdir " + folder + "/core").c_str()) == 0);
        for (const char *name :
             {"core/types.h", "core/params.h", "core/math.h", "core/interval.h", "core/near.h",
              "core/spans.h"}) {
            std::ofstream(folder + "/" + name) << file_text(name);
        }
        std::ofstream file(folder + "/all.c");
        file << prelude();
        for (size_t j = 0; j < sources.size(); j++) {
            const std::string n = std::to_string(j);
            std::string text = replaced(sources[j], "attn_score(", "score_" + n + "(");
            text = replaced(text, "attn_score_hold(", "hold_" + n + "(");
            text = as_rules(text);
            text = replaced(text, "attn_mask(", "mask_" + n + "(");
            text = replaced(text, "attn_mask_ends(", "ends_" + n + "(");
            text = replaced(text, "attn_mask_column(", "column_" + n + "(");
            text = replaced(text, "attn_mask_rest(", "rest_" + n + "(");
            text = replaced(text, "DEV u32 column_", "u32 column_");
            text = replaced(text, "DEV void ends_", "void ends_");
            text = replaced(text, "DEV int rest_", "int rest_");
            text = replaced(text, "attn_class(", "class_" + n + "(");
            text = replaced(text, "read_", "read_" + n + "_");
            text = replaced(text, "span_", "span_" + n + "_");
            text = replaced(text, "DEV float score", "float score");
            text = replaced(text, "DEV int mask", "int mask");
            text = replaced(text, "DEV int class", "int class");
            file << text;
        }
        file.close();
        const char *const cc = getenv("CC");
        const std::string command = std::string(cc && *cc ? cc : "cc") +
                                    " -std=gnu11 -O1 -w -ffp-contract=off -fPIC -shared -I" +
                                    folder + " " + folder + "/all.c -o " + folder + "/all.so";
        REQUIRE(system(command.c_str()) == 0);
        handle = dlopen((folder + "/all.so").c_str(), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(handle);
    }
    ~compiled() {
        if (handle) {
            dlclose(handle);
        }
        if (system(("rm -r " + folder).c_str()) != 0) {
            WARN("a temporary folder stays");
        }
    }
    compiled(const compiled &) = delete;

    template <typename function> function *find(const char *name, size_t j) const {
        return reinterpret_cast<function *>(
            dlsym(handle, (name + std::string("_") + std::to_string(j)).c_str()));
    }

  private:
    std::string folder;
    void *handle = nullptr;
};

using score_function = float(const attn_params *, const pair_of_ints *, float, float, int);
using ends_function = void(const attn_params *, const pair_of_ints *, i32 *, i32 *);
using mask_function = int(const attn_params *, const pair_of_ints *, float);
using column_function = u32(const attn_params *, const pair_of_ints *);
using rest_function = int(const attn_params *, const pair_of_ints *, float, u32);
using class_function = int(const attn_params *, const box_of_ints *);

std::string source_of(const attn_variant *v, const attn__bound *bound) {
    char *text = nullptr;
    REQUIRE(attn__variant_source(v, bound, 0, nullptr, &text) == ATTN_OK);
    const std::string s = text;
    free(text);
    return s;
}

pair_of_ints pair_of(const attn__env &e) {
    return {e.leaf[LEAF_b],  e.leaf[LEAF_h],  e.leaf[LEAF_q],  e.leaf[LEAF_k],  e.leaf[LEAF_i],
            e.leaf[LEAF_nq], e.leaf[LEAF_nk], e.leaf[LEAF_nh], e.leaf[LEAF_hk], e.leaf[LEAF_batch]};
}

/* A variant of a random score and a random mask; none if its constants overflow. */
std::unique_ptr<variant> draw(uint64_t seed) {
    graph g;
    builder make(&g.g, seed);
    rng r{seed};
    const int score = make.node(VT_F32, 1 + r.below(5)), mask = make.node(VT_BOOL, 1 + r.below(5));
    if (score < 0 || mask < 0) {
        return nullptr;
    }
    auto made = std::make_unique<variant>();
    const int status = attn__variant_new(&g.g, score, mask, &made->v);
    return status == ATTN_OK ? std::move(made) : nullptr;
}

float some_s(rng &r) {
    static const float edge[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, -3e38f};
    return r.below(5) == 0 ? edge[r.below(8)] : (float)(40 * r.uniform() - 20);
}

/* Pairs around one: up to 4 rows, 4 keys, 2 heads. */
struct box {
    box_of_ints ints;
    attn__env first;
    int rows, keys, heads;
};
box box_around(const attn__env &env, rng &r) {
    box b = {{}, env, 1 + r.below(4), 1 + r.below(4), 1 + r.below(2)};
    const int32_t *const e = env.leaf;
    b.ints = {e[LEAF_b],
              e[LEAF_h],
              e[LEAF_h] + b.heads - 1,
              e[LEAF_q],
              e[LEAF_q] + b.rows - 1,
              e[LEAF_i],
              e[LEAF_i] + b.rows - 1,
              e[LEAF_k],
              e[LEAF_k] + b.keys - 1,
              e[LEAF_nq],
              e[LEAF_nk],
              e[LEAF_nh],
              e[LEAF_hk],
              e[LEAF_batch]};
    return b;
}
attn__env env_in(const box &b, int row, int key, int head) {
    attn__env env = b.first;
    env.leaf[LEAF_q] += row;
    env.leaf[LEAF_i] += row;
    env.leaf[LEAF_k] += key;
    env.leaf[LEAF_h] += head;
    return env;
}

} // namespace

TEST_CASE("text gives the bits of the vector machine, classes are never wrong") {
    const size_t n = 200;
    std::vector<std::unique_ptr<variant>> variants;
    std::vector<std::unique_ptr<values>> with;
    std::vector<std::string> sources;
    for (uint64_t seed = 1000; variants.size() < n; seed++) {
        auto drawn = draw(seed);
        if (drawn) {
            with.push_back(std::make_unique<values>(&drawn->v->graph, seed));
            sources.push_back(source_of(drawn->v, with.back()->bound.data()));
            variants.push_back(std::move(drawn));
        }
    }
    const compiled code(sources);
    int classes[3] = {0, 0, 0}, scores = 0, bounded = 0, columns = 0;
    for (size_t j = 0; j < n; j++) {
        const attn_variant *const v = variants[j]->v;
        INFO(v->text << "\n" << sources[j]);
        auto *const score = code.find<score_function>("score", j);
        auto *const mask = code.find<mask_function>("mask", j);
        auto *const class_of = code.find<class_function>("class", j);
        auto *const ends = code.find<ends_function>("ends", j);
        auto *const column = code.find<column_function>("column", j);
        auto *const rest = code.find<rest_function>("rest", j);
        columns += sources[j].find("ATTN_MASK_COLUMN 1") != std::string::npos;
        REQUIRE((score != nullptr) == (attn__has_score(v) != 0));
        REQUIRE((mask != nullptr) == (attn__has_mask(v) != 0));
        REQUIRE((class_of != nullptr) == (attn__has_mask(v) != 0));
        attn_params params;
        memset(&params, 0, sizeof params);
        attn__words_fill(&v->graph, with[j]->bound.data(), params.word);
        rng r{j};
        for (int round = 0; round < 40; round++) {
            const attn__env start = environment(r);
            const box b = box_around(start, r);
            const int verdict = class_of ? class_of(&params, &b.ints) : 2;
            classes[verdict]++;
            for (int at = 0; at < b.rows * b.keys * b.heads; at++) {
                const attn__env env =
                    env_in(b, at % b.rows, at / b.rows % b.keys, at / b.rows / b.keys);
                const float s = some_s(r);
                const pair_of_ints pair = pair_of(env);
                const auto val =
                    eval32(&v->graph, std::max(v->score, v->mask), s, env, with[j]->bound);
                if (score) {
                    attn__val32 got;
                    got.f = score(&params, &pair, s, 1, 0);
                    scores++;
                    if (!same(VT_F32, got, val[(size_t)v->score])) {
                        FAIL("score " << got.f << ", not " << val[(size_t)v->score].f);
                    }
                }
                const int visible = val[(size_t)v->mask].i;
                if (mask && mask(&params, &pair, s) != visible) {
                    FAIL("mask is not " << visible);
                }
                i32 first = -0x7fffffff - 1, last = 0x7fffffff;
                if (mask) {
                    ends(&params, &pair, &first, &last);
                    bounded += first > 0 || last < 0x7fffffff;
                }
                const int within = first <= pair.k && pair.k <= last;
                const int kept =
                    !rest || rest(&params, &pair, s, column(&params, &pair));
                if (mask && (within && kept) != visible) {
                    FAIL("ends " << first << ".." << last << " and the rest are not " << visible);
                }
                if (verdict != 1 && visible != verdict / 2) {
                    FAIL("class " << verdict << " of a box with a pair that is " << visible);
                }
            }
        }
    }
    CHECK(columns > 2);
    CHECK(scores > 10000); // what was drawn means something
    CHECK(bounded > 200);
    CHECK(classes[0] > 500);
    CHECK(classes[1] > 500);
    CHECK(classes[2] > 500);
}

/* Blocks of 8 x 8 pairs of 40 x 56: the text's classes are those of attn__class. */
TEST_CASE("text finds the blocks of ordinary masks") {
    const std::vector<std::string> texts = {
        "k <= q",
        "q - k <= 9 && k - q <= 0",
        "k < 5 || k <= q",
        "k <= q && (k < 4 || q - k <= 9)",
        "floordiv(k, 16) == floordiv(q, 16)",
        "h < 2 || k <= q",
        "k % 32 < 16",
        "i < 8 ? k < 16 : k <= q",
        "abs(q - k) <= 12",
        "k <= q / 2",
        "2 * k <= q + 16",
        "max(k, 20) <= q",
        "k < nk - 30",
        "!(k > q) && k >= floordiv(h * nk, nh) - 8",
    };
    std::vector<std::unique_ptr<variant>> variants;
    std::vector<std::string> sources;
    for (const auto &text : texts) {
        variants.push_back(std::make_unique<variant>(text));
        sources.push_back(source_of(variants.back()->v, nullptr));
    }
    const compiled code(sources);
    for (size_t j = 0; j < texts.size(); j++) {
        const attn_variant *const v = variants[j]->v;
        auto *const class_of = code.find<class_function>("class", j);
        attn_params params;
        memset(&params, 0, sizeof params);
        for (int h = 0; h < 4; h++) {
            for (int q = 0; q < 40; q += 8) {
                for (int k = 0; k < 56; k += 8) {
                    const int q0 = q + 16;
                    attn__box want;
                    attn__box_init(&want, nullptr);
                    attn__box_set(&want, LEAF_b, 0, 0);
                    attn__box_set(&want, LEAF_h, h, h);
                    attn__box_set(&want, LEAF_q, q0, q0 + 7);
                    attn__box_set(&want, LEAF_i, q, q + 7);
                    attn__box_set(&want, LEAF_k, k, k + 7);
                    attn__box_set(&want, LEAF_nq, 40, 40);
                    attn__box_set(&want, LEAF_nk, 56, 56);
                    attn__box_set(&want, LEAF_nh, 4, 4);
                    attn__box_set(&want, LEAF_hk, 4, 4);
                    attn__box_set(&want, LEAF_batch, 1, 1);
                    want.no_overflow = 1;
                    const box_of_ints b = {0, h,     h,  q0, q0 + 7, q, q + 7,
                                           k, k + 7, 40, 56, 4,      4, 1};
                    INFO(texts[j] << " h " << h << " q " << q0 << " k " << k);
                    CHECK(class_of(&params, &b) == attn__class(&v->graph, v->mask, &want));
                }
            }
        }
    }
}

/* Blocks of 8 x 8 pairs of 56 x 56, whose rows and keys have elements in tables: the class is that
   of the pairs; where elements are not numbers it is not wrong. */
TEST_CASE("text finds the blocks of masks that read tensors") {
    const struct {
        const char *text;
        int type, exact;
    } rows[] = {{"i32 t[2]; t[b][q] == t[b][k]", ATTN_I32, 1},
                {"i32 t[2] in 0..1; t[b][q] == t[b][k]", ATTN_I32, 1},
                {"bool t[2]; t[b][k]", ATTN_BOOL, 1},
                {"i32 t[2]; k <= q && 10 * t[b][q] <= k", ATTN_I32, 0},
                {"t[b][k] > 1.5", ATTN_F32, 1},
                {"t[b][k] > 1.5", ATTN_BF16, 1},
                {"!(t[b][k] <= t[b][q]) || t[b][q] != 3", ATTN_F32, 0}};
    const size_t n_rows = sizeof rows / sizeof rows[0];
    std::vector<std::unique_ptr<variant>> variants;
    std::vector<std::string> sources;
    std::vector<attn__bound> bound(n_rows);
    std::vector<std::vector<char>> memory(n_rows, std::vector<char>(56 * 4));
    for (size_t j = 0; j < n_rows; j++) {
        memset(&bound[j], 0, sizeof bound[j]);
        bound[j].type = rows[j].type;
        bound[j].data = memory[j].data();
        bound[j].n[0] = bound[j].st[1] = 1;
        bound[j].n[1] = 56;
        variants.push_back(std::make_unique<variant>(rows[j].text));
        sources.push_back(source_of(variants[j]->v, &bound[j]));
    }
    const compiled code(sources);
    const double odd[] = {NAN, INFINITY, -INFINITY, 3};
    for (size_t at = 0; at < n_rows * 8; at++) {
        const size_t j = at % n_rows;
        const int wild = at >= n_rows && rows[j].type != ATTN_I32 && rows[j].type != ATTN_BOOL;
        rng r{at};
        for (int e = 0; e < 56; e++) { // runs of 0, 1, 2, 3, whose ends are the blocks' or not
            const int whole = e < 16 ? 0 : e < 30 ? 1 : e < 40 ? 2 : 3;
            const double x = rows[j].type == ATTN_BOOL ? whole == 1 : whole;
            attn__set(memory[j].data() + e * attn__type_bytes(rows[j].type), rows[j].type,
                      wild && r.below(4) == 0 ? odd[r.below(4)] : x);
        }
        const attn_variant *const v = variants[j]->v;
        auto *const class_of = code.find<class_function>("class", j);
        attn_params params;
        memset(&params, 0, sizeof params);
        attn__words_fill(&v->graph, &bound[j], params.word);
        const std::vector<attn__bound> bounds(1, bound[j]);
        for (int block = 0; block < 49; block++) {
            const int q = block / 7 * 8, k = block % 7 * 8;
            const box b = {{0, 0, 0, q, q + 7, q, q + 7, k, k + 7, 56, 56, 1, 1, 1}, {}, 8, 8, 1};
            int visible = 0;
            for (int pair = 0; pair < 64; pair++) {
                attn__env env = {};
                env.leaf[LEAF_q] = env.leaf[LEAF_i] = q + pair % 8;
                env.leaf[LEAF_k] = k + pair / 8;
                visible += eval32(&v->graph, v->mask, 0, env, bounds)[(size_t)v->mask].i;
            }
            const int right = visible == 64 ? 2 : visible ? 1 : 0;
            const int verdict = class_of(&params, &b.ints);
            INFO(rows[j].text << " q " << q << " k " << k << "\n" << sources[j]);
            CHECK((verdict == right || (verdict == 1 && (wild || !rows[j].exact))));
        }
    }
}

/* More elements than a lane looks at: what the type or the declaration leaves. */
TEST_CASE("text does not look at many elements") {
    const variant v("i32 t[1] in 3..9; t[k] >= 0 && t[k] < 10 && (k < 300 || t[k] == 5)");
    const std::vector<int32_t> table(600, 5);
    attn__bound b;
    memset(&b, 0, sizeof b);
    b.type = ATTN_I32;
    b.data = (const char *)table.data();
    b.n[0] = 600;
    b.st[0] = 1;
    const compiled code({source_of(v.v, &b)});
    auto *const class_of = code.find<class_function>("class", 0);
    attn_params params;
    memset(&params, 0, sizeof params);
    attn__words_fill(&v.v->graph, &b, params.word);
    box_of_ints at = {0, 0, 0, 0, 7, 0, 7, 0, 299, 8, 600, 1, 1, 1};
    CHECK(class_of(&params, &at) == 2); // by the declaration
    at.k0 = 300;
    at.k1 = 555;
    CHECK(class_of(&params, &at) == 2); // by the elements
    at.k1 = 556;
    CHECK(class_of(&params, &at) == 1);
}

/* Each op against both ends of its interval: boxes of q and k around 0, a bound w that wanders. */
TEST_CASE("the class is never wrong, op by op") {
    const char *const ops[] = {"-q",
                               "abs(q)",
                               "q + k",
                               "q - k",
                               "q * k",
                               "min(q, k)",
                               "max(q, k)",
                               "floordiv(q, k)",
                               "q % k",
                               "fmod(q, k)",
                               "band(q, k)",
                               "bor(q, k)",
                               "bxor(q, k)",
                               "bnot(q)",
                               "shl(q, h)",
                               "sar(q, h)",
                               "shr(q, h)",
                               "shl(q, k)",
                               "sar(q, k)",
                               "shr(q, k)",
                               "int(q * 0.3)",
                               "floor(q / 3)",
                               "ceil(k / -7)",
                               "abs(q / 2 - k)",
                               "-(q / 4)",
                               "q / 3 * (k / 5)",
                               "min(q / 2, k / 3)",
                               "max(q / 2, k / 3)",
                               "q / (h + 0.5)",
                               "q < k ? q : k + 9",
                               "q == k ? 5 : q - k",
                               "q != k && q > 0 ? q / 2 : k / 2",
                               "(q <= k || !(k < 3)) ? q : h",
                               "t[k]"};
    std::vector<std::unique_ptr<variant>> variants;
    std::vector<std::string> sources, texts;
    const int32_t table[3] = {4, 7, 100};
    attn__bound bound[2];
    for (const char *const op : ops) {
        for (const char *const order : {"<=", ">=", "<", "=="}) {
            const std::string e = op, t = e == "t[k]" ? "i32 t[1] in 2..9; " : "";
            texts.push_back(t + "i32 w; " + e + " " + order + " w");
            variants.push_back(std::make_unique<variant>(texts.back()));
            memset(bound, 0, sizeof bound);
            bound[0].type = bound[1].type = ATTN_I32;
            sources.push_back(source_of(variants.back()->v, bound));
        }
    }
    const compiled code(sources);
    int classes[3] = {0, 0, 0};
    for (size_t j = 0; j < texts.size(); j++) {
        const attn_variant *const v = variants[j]->v;
        auto *const class_of = code.find<class_function>("class", j);
        rng r{j};
        INFO(texts[j] << "\n" << sources[j]);
        REQUIRE(class_of);
        for (int round = 0; round < 300; round++) {
            std::vector<attn__bound> b((size_t)v->graph.n_symbols);
            for (int i = 0; i < v->graph.n_symbols; i++) {
                memset(&b[(size_t)i], 0, sizeof b[0]);
                b[(size_t)i].type = ATTN_I32;
                b[(size_t)i].i = r.between(-30, 30);
                b[(size_t)i].data = (const char *)table;
                b[(size_t)i].n[0] = 3;
                b[(size_t)i].st[0] = 1;
            }
            attn_params params;
            memset(&params, 0, sizeof params);
            attn__words_fill(&v->graph, b.data(), params.word);
            attn__env start = environment(r);
            start.leaf[LEAF_q] = r.between(-20, 20);
            start.leaf[LEAF_k] = r.between(-9, 20);
            const box at = box_around(start, r);
            const int verdict = class_of(&params, &at.ints);
            classes[verdict]++;
            for (int n = 0; verdict != 1 && n < at.rows * at.keys * at.heads; n++) {
                const attn__env env =
                    env_in(at, n % at.rows, n / at.rows % at.keys, n / at.rows / at.keys);
                if (eval32(&v->graph, v->mask, 0, env, b)[(size_t)v->mask].i != verdict / 2) {
                    FAIL("class " << verdict << ", but not for q " << env.leaf[LEAF_q] << ", k "
                                  << env.leaf[LEAF_k]);
                }
            }
        }
    }
    CHECK(classes[0] > 10000);
    CHECK(classes[2] > 10000);
    CHECK(classes[1] < 20000); // the intervals say something
}

/* Every element type that a symbol may have, with strides, and indices outside. */
TEST_CASE("text reads tensors as the host does") {
    const struct {
        const char *text;
        int type;
    } rows[] = {{"s + t[h][k]", ATTN_F32},
                {"s + t[h][k]", ATTN_F16},
                {"s + t[h][k]", ATTN_BF16},
                {"i32 t[2]; s + t[h][k]", ATTN_I32},
                {"i32 t[2] in -3..4; s + t[h][k]", ATTN_I32},
                {"bool t[2]; t[h][k] ? s : -inf", ATTN_BOOL},
                {"bool t[2]; t[h][k] ? s : -inf", ATTN_U8}};
    std::vector<std::unique_ptr<variant>> variants;
    std::vector<std::string> sources;
    std::vector<attn__bound> bound;
    std::vector<char> memory(4096);
    rng r{3};
    for (const auto &row : rows) {
        attn__bound b;
        memset(&b, 0, sizeof b);
        b.type = row.type;
        b.data = memory.data() + 512;
        b.n[0] = 3;
        b.n[1] = 5;
        b.st[0] = -1;
        b.st[1] = 6;
        bound.push_back(b);
        variants.push_back(std::make_unique<variant>(row.text));
        sources.push_back(source_of(variants.back()->v, &b));
    }
    const compiled code(sources);
    for (size_t j = 0; j < variants.size(); j++) {
        for (int e = 0; e < 300; e++) { // 512 bytes before, 700 behind
            const int bytes = attn__type_bytes(rows[j].type);
            attn__set(memory.data() + 512 + (e - 40) * bytes, rows[j].type,
                      rows[j].type == ATTN_BOOL || rows[j].type == ATTN_U8 ? r.below(2)
                      : rows[j].type == ATTN_I32                           ? r.between(-9, 9)
                                                 : r.between(-90, 90) / 8.0);
        }
        const attn_variant *const v = variants[j]->v;
        auto *const score = code.find<score_function>("score", j);
        auto *const mask = code.find<mask_function>("mask", j);
        attn_params params;
        memset(&params, 0, sizeof params);
        attn__words_fill(&v->graph, &bound[j], params.word);
        for (int h = -1; h < 4; h++) {
            for (int k = -2; k < 7; k++) {
                attn__env env;
                memset(&env, 0, sizeof env);
                env.leaf[LEAF_h] = h;
                env.leaf[LEAF_k] = k;
                const pair_of_ints pair = pair_of(env);
                const auto val = eval32(&v->graph, std::max(v->score, v->mask), 2, env, {bound[j]});
                INFO(rows[j].text << " " << attn__type_name(rows[j].type) << " " << h << " " << k);
                if (score) {
                    CHECK(score(&params, &pair, 2, 1, 0) == val[(size_t)v->score].f);
                }
                if (mask) {
                    CHECK(mask(&params, &pair, 2) == val[(size_t)v->mask].i);
                }
            }
        }
    }
}
