/* emu_host.h: kernels that are text in a test, compiled by the host's compiler and emulated.

   Who includes it: emu_test.cc, emu_memory_test.cc, emu_fault_test.cc, emu_gcn_test.cc,
   emu_sm90_test.cc, emu_sm90_fault_test.cc, work_test.cc, launch_test.cc. A text sees target.h; a
   test has nothing to do where there is no C compiler, and says so. */
#ifndef ATTN_EMU_HOST_H
#define ATTN_EMU_HOST_H

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include "emu/emu_driver.h"
#include "jit.h"
}

/* First in a test case: nothing is tested where there is no C compiler. */
#define NEEDS_CC()                                                                                 \
    if (!emu::has_cc()) {                                                                          \
        WARN("skipped: no C compiler");                                                            \
        return;                                                                                    \
    }

namespace emu {

/* What a kernel of these tests is given: both are words, or what the kernel says. */
struct Args {
    uint64_t in, out;
    int32_t n;
};

/* The beginning of every text; kernels follow as ATTN_ENTRY(name, body, args). */
inline const char *const head = "#include \"target.h\"\n"
                                "typedef struct args { u64 in, out; i32 n; } args;\n";

inline void check(int status) {
    if (status < 0) {
        throw std::runtime_error(attn_error());
    }
}

class Chip {
  public:
    explicit Chip(const char *name) { check(attn__emu.open(name, &chip)); }
    ~Chip() { attn__emu.close(chip); }
    Chip(const Chip &) = delete;
    Chip &operator=(const Chip &) = delete;
    attn__chip *chip = nullptr;
    attn__emu_counts last() const {
        attn__emu_counts counts;
        attn__emu_last(chip, &counts);
        return counts;
    }
};

class Code {
  public:
    /* The text of hip_kernels/ and of the test, as the library would compile it. */
    Code(Chip &on, const std::string &text) : chip(on) {
        const auto job = std::make_unique<attn__job>();
        const std::string all = head + text;
        void *code = nullptr;
        size_t bytes = 0;
        attn__job_begin(job.get(), attn__emu.target(chip.chip), "test.hip");
        job->file[job->n_files++] = {"test.hip", all.c_str()};
        for (const char *name : {"ATTN_TYPE", "ATTN_STAGES"}) {
            attn__job_define(job.get(), name, 1);
        }
        for (const char *name : {"ATTN_D", "ATTN_DV", "ATTN_BM", "ATTN_BN"}) {
            attn__job_define(job.get(), name, 64);
        }
        attn__job_define(job.get(), "ATTN_WARPS", 4);
        check(attn__cc.compile(job.get(), &code, &bytes));
        const int status = attn__emu.load(chip.chip, code, bytes, &module);
        std::free(code);
        check(status);
    }
    ~Code() { attn__emu.unload(chip.chip, module); }
    Code(const Code &) = delete;
    Code &operator=(const Code &) = delete;

    int launch(const char *kernel, const Args &args, int64_t blocks = 1, int threads = 32,
               int shared = 0) {
        return attn__emu.launch(chip.chip, module, kernel, blocks, threads, shared, &args,
                                sizeof args, nullptr);
    }
    /* Words in, words out. */
    std::vector<uint32_t> run(const char *kernel, const std::vector<uint32_t> &in, size_t n_out,
                              int threads = 32, int shared = 0) {
        std::vector<uint32_t> out(n_out, 0xdeadbeef);
        check(
            launch(kernel, {at(in), at(out), static_cast<int32_t>(in.size())}, 1, threads, shared));
        return out;
    }
    template <class T> static uint64_t at(const std::vector<T> &v) {
        return reinterpret_cast<uint64_t>(v.data());
    }

  private:
    Chip &chip;
    attn__module *module = nullptr;
};

/* Whether there is a C compiler; asked once. */
inline bool has_cc() {
    static const bool has = [] {
        char text[4096];
        return attn__cc.identity(nullptr, text, sizeof text) >= 0;
    }();
    return has;
}

/* A text with every `from` changed; there is one. */
inline std::string replaced(std::string text, const std::string &from, const std::string &to) {
    size_t n = 0;
    for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; n++) {
        text.replace(at, from.size(), to);
        at += to.size();
    }
    if (!from.empty() && n == 0) {
        throw std::runtime_error("the text has no \"" + from + "\"");
    }
    return text;
}

/* ATTN_EMU for as long as it lives. */
class Options {
  public:
    explicit Options(const char *value) { setenv("ATTN_EMU", value, 1); }
    ~Options() { unsetenv("ATTN_EMU"); }
    Options(const Options &) = delete;
    Options &operator=(const Options &) = delete;
};

} // namespace emu

#endif
