// rtc_test.cc: the compilers that are libraries, NVRTC and hipRTC, where they are here: no GPU is
// needed. The kernels themselves are compiled for both of NVIDIA's chips.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

extern "C" {
#include "jit.h"
}

namespace {

std::unique_ptr<attn__job> job_for(const char *target, const char *entry) {
    auto job = std::make_unique<attn__job>();
    const attn__target *const t = attn__target_find(target);
    REQUIRE(t != nullptr);
    attn__job_begin(job.get(), t, entry);
    return job;
}

// As gpu.c defines a forward kernel without a variant.
std::unique_ptr<attn__job> kernel(const char *target, int type, int number, int d) {
    auto job = job_for(target, "attn_fwd.hip");
    const attn__tile_size tile = attn__target_tile(job->target, type, d, d, INT64_MAX);
    attn__job_define(job.get(), "ATTN_TYPE", number);
    attn__job_define(job.get(), "ATTN_D", d);
    attn__job_define(job.get(), "ATTN_DV", d);
    attn__job_define(job.get(), "ATTN_BM", tile.bm);
    attn__job_define(job.get(), "ATTN_BN", tile.bn);
    attn__job_define(job.get(), "ATTN_WARPS", tile.warps);
    attn__job_define(job.get(), "ATTN_STAGES", tile.stages);
    return job;
}

// A small text in the place of the kernels.
std::unique_ptr<attn__job> text_for(const char *target, const char *text) {
    auto job = job_for(target, "a.hip");
    job->n_files = 2;
    job->file[0] = {"a.hip", "#include \"in/b.h\"\n"
                             "extern \"C\" __global__ void k(float *x) { x[0] = f(x[1]); }\n"};
    job->file[1] = {"in/b.h", text};
    return job;
}

bool is_here(const attn__compiler *compiler, const char *target, std::string *name) {
    char text[400];
    const int status = compiler->identity(attn__target_find(target), text, sizeof text);
    *name = status < 0 ? attn_error() : text;
    if (status < 0) {
        std::printf("skipped: %s\n", attn_error());
    }
    return status == ATTN_OK;
}

bool is_elf(const void *code, size_t n) {
    return n > 64 && std::memcmp(code,
                                 "\x7f"
                                 "ELF",
                                 4) == 0;
}

} // namespace

TEST_CASE("NVRTC compiles the kernels for sm_80 and sm_90a") {
    std::string name;
    if (!is_here(&attn__nvrtc, "sm_80", &name)) {
        return;
    }
    CHECK(name.find("NVRTC 1") == 0);
    CHECK(name.find(" -fmad=false") != std::string::npos);
    for (const char *const target : {"sm_80", "sm_90a"}) {
        void *code = nullptr;
        size_t n = 0;
        const auto job = kernel(target, ATTN_BF16, 2, 64);
        const int status = attn__nvrtc.compile(job.get(), &code, &n);
        INFO((status < 0 ? attn_error() : ""));
        REQUIRE(status == ATTN_OK);
        CHECK(is_elf(code, n));
        const std::string text(static_cast<char *>(code), n);
        CHECK(text.find("attn_fwd_shared") != std::string::npos); // the number that the host reads
        free(code);
    }
}

TEST_CASE("what NVRTC refuses comes with its words and the line") {
    std::string name;
    void *code = nullptr;
    size_t n = 0;
    if (!is_here(&attn__nvrtc, "sm_80", &name)) {
        return;
    }
    auto job = text_for("sm_80", "static __device__ float f(float x) { return x * TWO; }\n");
    CHECK(attn__nvrtc.compile(job.get(), &code, &n) == ATTN_DRIVER);
    CHECK(code == nullptr);
    const std::string why = attn_error();
    CHECK(why.find("in/b.h(1): error") != std::string::npos);
    CHECK(why.find("TWO") != std::string::npos);
    CHECK(std::string(attn_error_arg()) == "variant");
    attn__job_define(job.get(), "TWO", 2);
    REQUIRE(attn__nvrtc.compile(job.get(), &code, &n) == ATTN_OK);
    CHECK(is_elf(code, n));
    free(code);
    job->entry = "other.hip";
    CHECK(attn__nvrtc.compile(job.get(), &code, &n) == ATTN_DRIVER);
}

TEST_CASE("hipRTC works in a child, whose end is no end of the process") {
    std::string name;
    void *code = nullptr;
    size_t n = 0;
    if (!is_here(&attn__hiprtc, "gfx90a", &name)) {
        return;
    }
    auto job = text_for("gfx90a", "static __device__ float f(float x) { return x * TWO; }\n");
    CHECK(attn__hiprtc.compile(job.get(), &code, &n) == ATTN_DRIVER);
    CHECK(code == nullptr);
    CHECK(std::string(attn_error()).find("TWO") != std::string::npos);
    attn__job_define(job.get(), "TWO", 2);
    const int status = attn__hiprtc.compile(job.get(), &code, &n);
    INFO((status < 0 ? attn_error() : ""));
    REQUIRE(status == ATTN_OK);
    CHECK(is_elf(code, n));
    free(code);
    // HIP 5 ends the child here; later ones compile.
    job->target = attn__target_find("gfx942");
    const int other = attn__hiprtc.compile(job.get(), &code, &n);
    CHECK((other == ATTN_OK || std::string(attn_error()).find("too old") != std::string::npos));
    free(code);
}

TEST_CASE("which compilers are here", "[.names]") {
    std::string name;
    is_here(&attn__nvrtc, "sm_80", &name);
    is_here(&attn__hiprtc, "gfx90a", &name);
}

TEST_CASE("a compiler that is missing is named with what was looked for") {
    char self[512], line[512];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(length > 0);
    self[length] = 0;
    const std::string command = "ATTN_NVRTC=/nowhere/a.so ATTN_HIPRTC=/nowhere/b.so '" +
                                std::string(self) + "' 'which compilers are here'";
    std::string text;
    FILE *const f = popen(command.c_str(), "r");
    REQUIRE(f != nullptr);
    while (std::fgets(line, sizeof line, f)) {
        text += line;
    }
    pclose(f);
    INFO(text);
    CHECK(text.find("NVRTC is missing: /nowhere/a.so") != std::string::npos);
    CHECK(text.find("hipRTC is missing: /nowhere/b.so") != std::string::npos);
}
