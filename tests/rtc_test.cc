// rtc_test.cc: the compilers that are libraries, NVRTC and hipRTC, where they are here: no GPU is
// needed. The kernels themselves are compiled for both of NVIDIA's chips.
#include <dlfcn.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

extern "C" {
#include "jit_rtc.h"
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

TEST_CASE("nvcc and clang compile kernels, too") {
    const struct {
        const attn__compiler *compiler;
        const char *variable, *value, *target;
    } rows[] = {{&attn__nvcc, "ATTN_NVCC", "/usr/local/cuda/bin/nvcc", "sm_90a"},
                {&attn__nvcc_ptx, "ATTN_NVCC", "/usr/local/cuda/bin/nvcc", "compute_80"},
                {&attn__clang, "ATTN_CLANG", "clang-22", "gfx942"}};
    for (const auto &row : rows) {
        std::string name;
        const char *const given = getenv(row.variable);
        const std::string was = given ? given : "";
        setenv(row.variable, given ? given : row.value, 1);
        if (is_here(row.compiler, row.target, &name)) {
            void *code = nullptr;
            size_t n = 0;
            const auto job = kernel(row.target, ATTN_BF16, 2, 64);
            const int status = row.compiler->compile(job.get(), &code, &n);
            INFO((status < 0 ? attn_error() : ""));
            REQUIRE(status == ATTN_OK);
            const std::string text(static_cast<char *>(code), n);
            CHECK(text.find("attn_fwd") != std::string::npos);
            if (row.compiler == &attn__nvcc_ptx) {
                CHECK(text.find(".target compute_80") == std::string::npos);
                CHECK(text.find(".target sm_80") != std::string::npos);
                CHECK(text.find('\0') == n - 1); // as the driver wants it
            } else {
                CHECK(is_elf(code, n));
            }
            free(code);
        }
        given ? setenv(row.variable, was.c_str(), 1) : unsetenv(row.variable);
    }
}

TEST_CASE("which compilers are here", "[.names]") {
    std::string name;
    is_here(&attn__nvrtc, "sm_80", &name);
    is_here(&attn__hiprtc, "gfx90a", &name);
}

// What a process of this program prints that runs one of its hidden cases.
std::string other_process(const std::string &environment, const std::string &name) {
    char self[512], line[512];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(length > 0);
    self[length] = 0;
    const std::string command = environment + " '" + std::string(self) + "' '" + name + "'";
    std::string text;
    FILE *const f = popen(command.c_str(), "r");
    REQUIRE(f != nullptr);
    while (std::fgets(line, sizeof line, f)) {
        text += line;
    }
    pclose(f);
    return text;
}

std::string new_folder() {
    char path[] = "/tmp/attn_rtc_XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    return path;
}

TEST_CASE("a compiler that is missing is named with what was looked for") {
    const std::string text = other_process("ATTN_NVRTC=/nowhere/a.so ATTN_HIPRTC=/nowhere/b.so",
                                           "which compilers are here");
    INFO(text);
    CHECK(text.find("NVRTC is missing: /nowhere/a.so") != std::string::npos);
    CHECK(text.find("hipRTC is missing: /nowhere/b.so") != std::string::npos);
    CHECK(text.find("; ATTN_NVRTC names it\n") != std::string::npos);
    CHECK(text.find("; ATTN_HIPRTC names it\n") != std::string::npos);
}

TEST_CASE("which NVRTC is here and whether it was opened", "[.opened]") {
    std::string name;
    if (const char *const first = getenv("FIRST")) { // as a framework brings its own
        REQUIRE(dlopen(first, RTLD_NOW) != nullptr);
    }
    if (is_here(&attn__nvrtc, "sm_80", &name)) {
        std::ifstream maps("/proc/self/maps");
        const std::string all{std::istreambuf_iterator<char>(maps), {}};
        std::printf("<%s> %s\n", name.c_str(),
                    all.find("libnvrtc") == std::string::npos ? "noted" : "opened");
    }
    if (getenv("PTX")) {
        void *code = nullptr;
        size_t n = 0;
        const auto job = text_for("compute_80", "");
        const int status = attn__ptx.compile(job.get(), &code, &n);
        std::printf("PTX: %s\n", status < 0 ? attn_error() : static_cast<char *>(code));
        free(code);
    }
}

// A library with NVRTC's entries, which compiles everything to the text "none"; another one by
// `more`. The version is one that there is not.
bool make_nvrtc(const std::string &path, const std::string &more) {
    std::ofstream(path + ".c")
        << "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 77; return 0; }\n"
           "int nvrtcCreateProgram(void) { return 0; }\n"
           "int nvrtcDestroyProgram(void) { return 0; }\n"
           "int nvrtcCompileProgram(void) { return 0; }\n"
           "int nvrtcGetProgramLogSize(void) { return 1; }\n"
           "int nvrtcGetProgramLog(void) { return 1; }\n"
           "int nvrtcGetPTXSize(void *p, unsigned long *n) { *n = 5; return 0; }\n"
           "int nvrtcGetPTX(void *p, char *to) { __builtin_memcpy(to, \"none\", 5); return 0; }\n"
           "int nvrtcGetCUBINSize(void *p, unsigned long *n) { *n = 5; return 0; }\n"
           "int nvrtcGetCUBIN(void *p, char *to) { return nvrtcGetPTX(p, to); }\n"
           "const char *nvrtcGetErrorString(int e) { return \"an error\"; }\n"
        << more;
    return std::system(("cc -w -shared -fPIC -Wl,-soname,libnvrtc.so.13 " + path + ".c -o " + path)
                           .c_str()) == 0;
}

std::string between_brackets(const std::string &text) {
    const size_t at = text.find('<');
    return at == std::string::npos ? "" : text.substr(at, text.find('>') - at);
}

struct Fake {
    const std::string folder = new_folder(), path = folder + "/libnvrtc-fake.so";
    const bool made = make_nvrtc(path, "");
    const std::string cache = "ATTN_CACHE='" + folder + "/cache' ", named = "ATTN_NVRTC=" + path;
    const std::string name = "which NVRTC*";
    Fake() {
        if (!made) {
            std::printf("skipped: no cc\n");
        }
    }
    ~Fake() { std::system(("rm -rf '" + folder + "'").c_str()); }
    Fake(const Fake &) = delete;
    std::string run(const std::string &environment) const {
        return other_process(cache + environment, name);
    }
};

TEST_CASE("a noted library that can no longer be opened is missing") {
    const Fake fake;
    if (!fake.made) {
        return;
    }
    CHECK(fake.run(fake.named + " PTX=1").find("PTX: none") != std::string::npos);
    // Other bytes of the same size and time.
    const std::string keep = fake.folder + "/keep", write = "dd conv=notrunc of=" + fake.path;
    const std::string spoil = "cp -p " + fake.path + " " + keep + " && printf spoiled | " + write +
                              " 2>/dev/null && touch -r " + keep + " " + fake.path;
    REQUIRE(std::system(spoil.c_str()) == 0);
    const std::string second = fake.run(fake.named + " PTX=1");
    INFO(second);
    CHECK(second.find("> noted") != std::string::npos);
    CHECK(second.find("PTX: the compiler NVRTC is missing: " + fake.path) != std::string::npos);
}

TEST_CASE("a library that a framework brought is taken, and is no other process's") {
    const Fake fake;
    if (!fake.made) {
        return;
    }
    const std::string plain = fake.run(""), first = "FIRST=" + fake.path;
    CHECK(fake.run(first).find("<NVRTC 13.77") != std::string::npos);
    CHECK(between_brackets(fake.run("")) == between_brackets(plain));
    const std::string other = "ATTN_CACHE='" + fake.folder + "/other' ";
    CHECK(other_process(other + first, fake.name).find("<NVRTC 13.77") != std::string::npos);
    CHECK(between_brackets(other_process(other, fake.name)) == between_brackets(plain));
}

TEST_CASE("an update of the same version is another compiler, a copy is none") {
    const Fake fake;
    if (!fake.made) {
        return;
    }
    const std::string first = between_brackets(fake.run(fake.named)), copy = fake.path + ".copy";
    CHECK(first.find("<NVRTC 13.77") == 0);
    REQUIRE(std::system(("cp -p " + fake.path + " " + copy).c_str()) == 0);
    CHECK(between_brackets(fake.run("ATTN_NVRTC=" + copy)) == first);
    REQUIRE(make_nvrtc(fake.path, "int more[1000] = {1};\n"));
    const std::string second = between_brackets(fake.run(fake.named));
    CHECK(second.find("<NVRTC 13.77") == 0);
    CHECK(second != first);
    CHECK(between_brackets(fake.run(fake.named)) == second); // by the note
}

TEST_CASE("a process whose kernels are cached does not open NVRTC") {
    const std::string folder = new_folder(), cache = "ATTN_CACHE='" + folder + "'";
    const std::string name = "which NVRTC*", first = other_process(cache, name);
    if (first.find('<') == std::string::npos) {
        std::printf("skipped: no NVRTC\n");
    } else {
        const size_t at = first.find("<");
        const std::string version = first.substr(at, first.find(">") - at);
        CHECK(first.find("> opened") != std::string::npos);
        const std::string second = other_process(cache, name);
        CHECK(second.find("> noted") != std::string::npos);
        CHECK(second.find(version) != std::string::npos);
        // The loader may find another one; and without a cache there is no note.
        CHECK(other_process("LD_LIBRARY_PATH=/nowhere:$LD_LIBRARY_PATH " + cache, name)
                  .find("> opened") != std::string::npos);
        CHECK(other_process("ATTN_CACHE=none", name).find("> opened") != std::string::npos);
    }
    std::system(("rm -rf '" + folder + "'").c_str());
}

TEST_CASE("a note of a compiler counts while its file is what it was") {
    const std::string folder = new_folder(), path = folder + "/libthirteen.so";
    const std::string cc = "echo 'int version(int *a, int *b) { *a = 13; *b = 1; return 0; }' | "
                           "cc -shared -fPIC -x c - -o " +
                           path;
    if (std::system(cc.c_str()) != 0) {
        std::printf("skipped: no cc\n");
        return;
    }
    const char *const was = getenv("ATTN_CACHE");
    const std::string before = was ? was : "";
    setenv("ATTN_CACHE", (folder + "/cache").c_str(), 1);
    void *const library = dlopen(path.c_str(), RTLD_NOW);
    REQUIRE(library != nullptr);
    attn__rtc opened = {}, known = {};
    opened.name = known.name = "THIRTEEN";
    opened.major = 13;
    opened.minor = 1;
    void *const f = dlsym(library, "version");
    std::memcpy(&opened.version, &f, sizeof f);
    CHECK(attn__rtc_recall(&known, "here") == 0);
    attn__rtc_remember(&opened, "here");
    CHECK(attn__rtc_recall(&known, "there") == 0);
    REQUIRE(attn__rtc_recall(&known, "here") == 1);
    CHECK(known.major == 13);
    CHECK(known.minor == 1);
    std::ofstream(path, std::ios::app) << "more";
    CHECK(attn__rtc_recall(&known, "here") == 0);
    attn__rtc_remember(&opened, "here");
    CHECK(attn__rtc_recall(&known, "here") == 1);
    std::remove(path.c_str());
    CHECK(attn__rtc_recall(&known, "here") == 0);
    dlclose(library);
    was ? setenv("ATTN_CACHE", before.c_str(), 1) : unsetenv("ATTN_CACHE");
    std::system(("rm -rf '" + folder + "'").c_str());
}
