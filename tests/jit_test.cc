// jit_test.cc: the host's compiler as a compiler of kernels, and the cache: what is damaged or
// open to others is made anew.

#include <catch2/catch.hpp>

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

extern "C" {
#include "jit.h"
}

namespace {

/* A folder that is gone at the end, and $ATTN_CACHE within it. */
struct folder {
    std::string path, cache;
    folder() {
        char name[] = "/tmp/attn-jit-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
        cache = path + "/some/where";
        setenv("ATTN_CACHE", cache.c_str(), 1);
    }
    ~folder() {
        unsetenv("ATTN_CACHE");
        if (system(("rm -r " + path).c_str()) != 0) {
            WARN("a temporary folder stays");
        }
    }
    folder(const folder &) = delete;
    int files() const {
        int n = 0;
        if (DIR *const dir = opendir(cache.c_str())) {
            while (const dirent *const e = readdir(dir)) {
                n += e->d_name[0] != '.' || std::strlen(e->d_name) > 2;
            }
            closedir(dir);
        }
        return n;
    }
};

attn__job job_of(const char *text) {
    attn__target target = *attn__target_find("sm_80");
    static attn__target emulated;
    emulated = target;
    emulated.emulated = 80;
    emulated.compiler = "cc";
    attn__job job;
    attn__job_begin(&job, &emulated, "small.c");
    job.file[job.n_files++] = {"small.c", text};
    attn__job_define(&job, "NUMBER", 42);
    return job;
}
const char *const small = "const int answer = NUMBER;\n";

std::string key_of(const attn__job &job) {
    char key[ATTN__KEY];
    REQUIRE(attn__jit_key(&job, key) == ATTN_OK);
    return key;
}

std::string code_of(const attn__job &job) {
    void *code = nullptr;
    size_t n = 0;
    const int status = attn__jit(&job, key_of(job).c_str(), &code, &n);
    INFO(attn_error());
    REQUIRE(status == ATTN_OK);
    const std::string bytes(static_cast<char *>(code), n);
    free(code);
    return bytes;
}

std::string read(const std::string &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}
void write(const std::string &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace

TEST_CASE("keys depend on all that a compile depends on") {
    const std::string first = key_of(job_of(small));
    CHECK(first.size() == 64);
    CHECK(key_of(job_of(small)) == first);
    CHECK(key_of(job_of("const int answer = NUMBER ;\n")) != first);
    attn__job other = job_of(small);
    attn__job_define(&other, "MORE", 1);
    CHECK(key_of(other) != first);
    other = job_of(small);
    other.entry = "large.c";
    CHECK(key_of(other) != first);
    setenv("CC", "cc -O2", 1);
    CHECK(key_of(job_of(small)) != first);
    unsetenv("CC");
    CHECK(key_of(job_of(small)) == first);
}

TEST_CASE("a compiler is what it says of itself, not its name") {
    const folder here;
    const std::string first = key_of(job_of(small)), path = here.path + "/same";
    write(path, "#!/bin/sh\nexec cc \"$@\"\n");
    REQUIRE(chmod(path.c_str(), 0700) == 0);
    setenv("CC", path.c_str(), 1);
    CHECK(key_of(job_of(small)) == first);
    setenv("CC", (path + " -O2").c_str(), 1);
    CHECK(key_of(job_of(small)) != first);
    const std::string other = here.path + "/other";
    write(other, "#!/bin/sh\necho another version >&2\nexec cc \"$@\"\n");
    REQUIRE(chmod(other.c_str(), 0700) == 0);
    setenv("CC", other.c_str(), 1);
    CHECK(key_of(job_of(small)) != first);
    unsetenv("CC");
}

/* A compiler made it, of `code`'s text. Sanitized code holds the name of the folder it was made in,
   which differs each time. */
static bool same_code(const std::string &made, const std::string &code) {
#ifdef __SANITIZE_ADDRESS__
    return made.size() == code.size() && made.compare(0, 4, code, 0, 4) == 0;
#else
    return made == code;
#endif
}

TEST_CASE("code is what the text says, and is found again") {
    const folder here;
    const std::string code = code_of(job_of(small));
    write(here.path + "/code.so", code);
    void *const handle = dlopen((here.path + "/code.so").c_str(), RTLD_NOW);
    REQUIRE(handle);
    CHECK(*static_cast<const int *>(dlsym(handle, "answer")) == 42);
    dlclose(handle);
    REQUIRE(here.files() == 1);

    /* What stands there counts: an entry that no compiler made. */
    const std::string path = here.cache + "/" + key_of(job_of(small)) + ".code";
    const std::string entry = read(path), planted = "planted";
    REQUIRE(entry.size() == code.size() + 48);
    CHECK(entry.substr(48) == code);
    attn__sha256 sum;
    uint8_t digest[32];
    attn__sha256_begin(&sum);
    attn__sha256_add(&sum, planted.data(), planted.size());
    attn__sha256_end(&sum, digest);
    const uint64_t size = planted.size();
    const std::string head = entry.substr(0, 8) +
                             std::string(reinterpret_cast<const char *>(&size), 8) +
                             std::string(reinterpret_cast<const char *>(digest), 32);
    write(path, head + planted);
    CHECK(code_of(job_of(small)) == planted);

    /* Unless it is damaged, too long, too short, open to others, or elsewhere. */
    for (const std::string &damaged :
         {head + "plante?", head + planted + "!", head + "plant", head, std::string("x")}) {
        write(path, damaged);
        CHECK(same_code(code_of(job_of(small)), code));
        CHECK(same_code(read(path).substr(48), code));
    }
    write(path, head + planted);
    REQUIRE(chmod(path.c_str(), 0666) == 0);
    CHECK(same_code(code_of(job_of(small)), code));
    struct stat s;
    REQUIRE(stat(path.c_str(), &s) == 0);
    CHECK((s.st_mode & 0777) == 0600);
    write(here.path + "/elsewhere", head + planted);
    REQUIRE(unlink(path.c_str()) == 0);
    REQUIRE(symlink((here.path + "/elsewhere").c_str(), path.c_str()) == 0);
    CHECK(same_code(code_of(job_of(small)), code));
    REQUIRE(unlink(path.c_str()) == 0);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0); /* which nobody writes to */
    CHECK(same_code(code_of(job_of(small)), code));
    CHECK(same_code(read(path).substr(48), code));

    /* A folder that others may write to holds nothing of ours. */
    write(path, head + planted);
    REQUIRE(chmod(here.cache.c_str(), 0777) == 0);
    CHECK(same_code(code_of(job_of(small)), code));
    CHECK(read(path) == head + planted);
}

TEST_CASE("without a cache nothing is written") {
    const folder here;
    setenv("ATTN_CACHE", "none", 1);
    CHECK(code_of(job_of(small)).size() > 1000);
    setenv("ATTN_CACHE", "/proc/no/such", 1);
    CHECK(code_of(job_of(small)).size() > 1000);
    CHECK(here.files() == 0);
}

TEST_CASE("processes may race") {
    const folder here;
    pid_t child[4];
    for (pid_t &c : child) {
        c = fork();
        if (c == 0) {
            const attn__job job = job_of(small);
            char key[ATTN__KEY];
            void *code;
            size_t n;
            _exit(attn__jit_key(&job, key) == ATTN_OK && attn__jit(&job, key, &code, &n) == ATTN_OK
                      ? 0
                      : 1);
        }
    }
    for (const pid_t c : child) {
        int status = -1;
        REQUIRE(waitpid(c, &status, 0) == c);
        CHECK(status == 0);
    }
    CHECK(here.files() == 1);
}

// What the process does that `other_plan` starts: a plan, and a bundle if one is wanted.
TEST_CASE("a plan is made", "[.plan]") {
    attn_device *d;
    attn_plan *plan;
    attn_variant *variant;
    int64_t shape[] = {1, 1, 16, 32};
    attn_tensor q = {nullptr, {0, 0}, 4, {2, 16, 1}, shape, nullptr, 0};
    attn_call call = {};
    call.size = sizeof call;
    call.q = call.k = call.v = call.o = &q;
    REQUIRE(attn_device_open(getenv("DEV"), nullptr, &d) == ATTN_OK);
    REQUIRE(attn_variant_parse("k <= q ? s : -inf", &variant) == ATTN_OK);
    const int status = attn_plan_new(d, ATTN_FORWARD, &call, variant, &plan);
    INFO(attn_error());
    REQUIRE(status == ATTN_OK);
    attn_plan_release(plan);
    if (const char *const bundle = getenv("WRITE")) {
        CHECK(attn_bundle_write(d, bundle) == ATTN_OK);
    }
    attn_variant_release(variant);
    attn_device_release(d);
}

// Environment is read once, so another process is taken.
static bool other_plan(const std::string &device, const std::string &environment) {
    const std::string self = "/proc/" + std::to_string(getpid()) + "/exe";
    const std::string set = "DEV=" + device + " " + environment;
    return system((set + " " + self + " 'a plan is made'").c_str()) == 0;
}

// The folder of forward's kernel.
static std::string kernel_in(const std::string &debug) {
    std::string kernel;
    DIR *const dir = opendir(debug.c_str());
    REQUIRE(dir != nullptr);
    while (const dirent *const e = readdir(dir)) {
        const std::string name = e->d_name;
        kernel = name.find("-attn_fwd") == 16 ? debug + "/" + name : kernel;
    }
    closedir(dir);
    REQUIRE_FALSE(kernel.empty());
    return kernel;
}

TEST_CASE("every step of a plan can be read") {
    const folder here;
    const std::string debug = here.path + "/a/b/debug", other = here.path + "/other";
    const std::string bundle = here.path + "/bundle", set = "ATTN_DEBUG=" + debug;
    REQUIRE(other_plan("make:emu:sm_80", set + " WRITE=" + bundle));
    const std::string line = read(debug + "/plans.json");
    CHECK(line.find("\"event\":\"plan\"") != std::string::npos);
    CHECK(line.find("k <= q") != std::string::npos);
    const std::string kernel = kernel_in(debug), job = read(kernel + "/job.txt");
    CHECK(job.find("attn_fwd.hip for sm_80 by cc\nkey ") == 0);
    CHECK(job.find("#define ATTN_D=32\n") != std::string::npos);
    CHECK(read(kernel + "/variant.h").size() > 100);
    CHECK(read(kernel + "/code").compare(1, 3, "ELF") == 0);
    const std::string code = read(kernel + "/code.s");
    CHECK(code.find("attn_fwd") != std::string::npos);
    CHECK(read(kernel + "/resources.txt").find("text") != std::string::npos);

    // What a killed process left is made whole; what is whole stays.
    write(kernel + "/code.s", "half");
    REQUIRE(other_plan("emu:sm_80", set));
    CHECK(read(kernel + "/code.s") == "half");
    REQUIRE(unlink((kernel + "/job.txt").c_str()) == 0);
    REQUIRE(other_plan("emu:sm_80", set));
    CHECK(read(kernel + "/code.s") == code);
    CHECK(read(kernel + "/job.txt") == job);

    REQUIRE(other_plan("emu:sm_80", "ATTN_BUNDLE=" + bundle + " ATTN_DEBUG=" + other));
    CHECK(read(kernel_in(other) + "/job.txt").find("attn_fwd.hip for sm_80 by a bundle\n") == 0);
}

TEST_CASE("nvcc makes code and PTX where ATTN_NVCC names it") {
    const folder here;
    const std::string nvcc = here.path + "/nvcc", ptxas = here.path + "/ptxas";
    // Its code is the text of its options; the last one is the file.
    write(nvcc, "#!/bin/sh\nfor a in \"$@\"; do out=$a; done\n"
                "[ \"$1\" = --version ] && echo a look-alike || printf '%s' \"$*\" > \"$out\"\n");
    write(ptxas, "#!/bin/sh\necho spills of \"$@\"\n");
    REQUIRE(chmod(nvcc.c_str(), 0700) == 0);
    REQUIRE(chmod(ptxas.c_str(), 0700) == 0);
    for (const std::string chip : {"sm_90a", "compute_80"}) {
        const bool ptx = chip == "compute_80";
        const std::string debug = here.path + "/" + chip;
        REQUIRE(other_plan("make:" + chip, "ATTN_NVCC=" + nvcc + " ATTN_DEBUG=" + debug +
                                               " PATH=" + here.path + ":$PATH"));
        const std::string kernel = kernel_in(debug), code = read(kernel + "/code");
        CHECK(code.find(ptx ? "-x cu -std=c++17 -ptx -O3" : "-x cu -std=c++17 -cubin -O3") == 0);
        CHECK(code.find(" -arch=" + chip + " ") != std::string::npos);
        CHECK(code.find('\0') == std::string::npos);
        CHECK(read(kernel + "/job.txt").find("attn_fwd.hip for " + chip + " by nvcc\n") == 0);
        if (ptx) {
            CHECK(read(kernel + "/code.s") == code);
            CHECK(read(kernel + "/resources.txt") ==
                  "spills of -v -arch=sm_80 -o /dev/null " + kernel + "/code\n");
        }
    }
}

TEST_CASE("a compile may be killed") {
    const folder here;
    const std::string path = here.path + "/killer";
    write(path, "#!/bin/sh\ncase \" $* \" in *' -v '*) exec cc \"$@\" ;; esac\n"
                "kill -9 $PPID\n");
    REQUIRE(chmod(path.c_str(), 0700) == 0);
    setenv("TMPDIR", here.path.c_str(), 1);
    const pid_t child = fork();
    if (child == 0) {
        setenv("CC", path.c_str(), 1);
        const attn__job job = job_of(small);
        char key[ATTN__KEY];
        void *code;
        size_t n;
        attn__jit_key(&job, key);
        attn__jit(&job, key, &code, &n);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(here.files() == 0);
    CHECK(code_of(job_of(small)).size() > 1000);
    CHECK(here.files() == 1);
    unsetenv("TMPDIR");
}

TEST_CASE("a compiler may hang, with the programs that it started") {
    const folder here;
    const std::string path = here.path + "/hangs", number = here.path + "/number";
    const std::string hang = "sleep 1000 &\necho $! > " + number + "\nwait\n";
    void *code = nullptr;
    size_t n = 0;
    char key[ATTN__KEY];
    const attn__job job = job_of(small);
    setenv("CC", path.c_str(), 1);
    setenv("ATTN_COMPILE_SECONDS", "1", 1);
    write(path, "#!/bin/sh\ncase \" $* \" in *' -v '*) exec cc \"$@\" ;; esac\n" + hang);
    REQUIRE(chmod(path.c_str(), 0700) == 0);
    REQUIRE(attn__jit_key(&job, key) == ATTN_OK);
    CHECK(attn__cc.compile(&job, &code, &n) == ATTN_DRIVER);
    CHECK(std::strstr(attn_error(), "in 1 seconds") != nullptr);
    // It is gone, or waits to be counted by whoever is its parent now.
    const std::string stat = read("/proc/" + std::to_string(std::stoi(read(number))) + "/stat");
    CHECK((stat.empty() || stat.find(") Z ") != std::string::npos));
    const std::string never = here.path + "/never";
    write(never, "#!/bin/sh\n" + hang);
    REQUIRE(chmod(never.c_str(), 0700) == 0);
    setenv("CC", never.c_str(), 1);
    CHECK(attn__jit_key(&job, key) == ATTN_DEVICE);
    CHECK(std::strstr(attn_error(), "does not answer -v") != nullptr);
    unsetenv("ATTN_COMPILE_SECONDS");
    unsetenv("CC");
}

TEST_CASE("a program may ignore its children, or wait for all of them") {
    const folder here;
    setenv("ATTN_CACHE", "none", 1);
    void (*const reap)(int) = [](int) {
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
    };
    for (void (*const handler)(int) : {SIG_IGN, reap}) {
        const auto before = signal(SIGCHLD, handler);
        const std::string code = code_of(job_of(small));
        const attn__job broken = job_of("int answer = nothing_of_that_name;\n");
        void *none = nullptr;
        size_t n = 0;
        const int status = attn__jit(&broken, key_of(broken).c_str(), &none, &n);
        signal(SIGCHLD, before);
        CHECK(code.size() > 1000);
        CHECK(status == ATTN_DRIVER);
        CHECK(std::strstr(attn_error(), "nothing_of_that_name") != nullptr);
    }
}

TEST_CASE("what cannot be compiled is said") {
    const folder here;
    const attn__job broken = job_of("int answer = nothing_of_that_name;\n");
    void *code = nullptr;
    size_t n = 0;
    CHECK(attn__jit(&broken, key_of(broken).c_str(), &code, &n) == ATTN_DRIVER);
    CHECK(code == nullptr);
    CHECK(std::strstr(attn_error(), "nothing_of_that_name") != nullptr);
    CHECK(here.files() == 0);
    setenv("CC", "no-such-compiler", 1);
    char key[ATTN__KEY];
    const attn__job job = job_of(small);
    CHECK(attn__jit_key(&job, key) == ATTN_DEVICE);
    CHECK(std::strstr(attn_error(), "no-such-compiler") != nullptr);
    unsetenv("CC");
}

TEST_CASE("the generator's sums of the kernels' text are those of the library's own hash") {
    for (int emulated = 0; emulated < 2; emulated++) {
        attn__sha256 sum;
        char hex[ATTN__KEY];
        attn__sha256_begin(&sum);
        for (int i = 0; i < attn__n_kernel_files; i++) {
            const attn__kernel_file &f = attn__kernel_files[i];
            if (f.who == FOR_ALL || f.who == (emulated ? FOR_EMULATED : FOR_CHIPS)) {
                attn__sha256_add(&sum, f.file.name, std::strlen(f.file.name) + 1);
                attn__sha256_add(&sum, f.file.text, std::strlen(f.file.text) + 1);
            }
        }
        attn__sha256_hex(&sum, hex);
        CHECK(std::string(hex) == attn__kernel_sums[emulated]);
    }
}

TEST_CASE("the hash is that of FIPS 180-4") {
    const struct {
        std::string text, hex;
    } rows[] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                {std::string(1000000, 'a'),
                 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    for (const auto &row : rows) {
        for (const size_t step : {size_t{1}, size_t{63}, size_t{1000}}) {
            attn__sha256 sum;
            uint8_t digest[32];
            attn__sha256_begin(&sum);
            for (size_t at = 0; at < row.text.size(); at += step) {
                attn__sha256_add(&sum, row.text.data() + at, std::min(step, row.text.size() - at));
            }
            attn__sha256_end(&sum, digest);
            std::string hex;
            for (const uint8_t byte : digest) {
                hex += "0123456789abcdef"[byte >> 4];
                hex += "0123456789abcdef"[byte & 15];
            }
            CHECK(hex == row.hex);
        }
    }
}
