// fake_gpu_test.h: a look-alike of a GPU's driver in a test: built by cc, found by the library, and
// with the emulator as its chip.
//
// Who includes it, after Catch: cache_test.cc, fault_test.cc, hip_test.cc, memory_test.cc,
// run_test.cc, vendors_test.cc. What the library gives to the look-alike's compiler becomes an
// emulated kernel: texts that chips and emulator have in common are those handed over, the others
// (the instructions) are the emulator's.
#ifndef ATTN_FAKE_GPU_TEST_H
#define ATTN_FAKE_GPU_TEST_H

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "emu/emu_driver.h"
#include "gpu_params.h"
#include "jit.h"
}

namespace fake {

// As fake_gpu.h has them.
struct Launch {
    char kernel[48];
    unsigned grid, block, shared;
    void *stream;
    unsigned char params[4096];
    int count;
};
struct Emulator {
    size_t params;
    int (*compile)(const char *, int, const char *const *, const char *const *, int,
                   const char *const *, void **, size_t *);
    void *(*load)(int, const void *);
    void (*unload)(int, void *);
    int (*number)(int, void *, const char *, int32_t *);
    int (*launch)(int, void *, const char *, unsigned, unsigned, unsigned, const void *);
    int (*map)(int, const void *, const uint64_t *, const uint64_t *, const uint32_t *, void *);
};
enum { INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, ILLEGAL_ADDRESS = 700 };

// -- The emulator as the chip of device 0 and 1 --------------------------------------------------

struct Chips {
    std::map<std::string, attn__chip *> open;
    ~Chips() {
        for (const auto &one : open) {
            attn__emu.close(one.second);
        }
    }
};
inline attn__chip *chip_of(const std::string &name) {
    static Chips chips;
    if (!chips.open[name] && attn__emu.open(("emu:" + name).c_str(), &chips.open[name]) < 0) {
        abort();
    }
    return chips.open[name];
}
// What a driver's devices are, by their numbers.
inline constexpr const char *HIP[] = {"gfx942", "gfx90a"}, *CUDA[] = {"sm_90a"};

inline bool is_emulators_own(const char *name) {
    for (int i = 0; i < attn__n_kernel_files; i++) {
        if (std::strcmp(attn__kernel_files[i].file.name, name) == 0 &&
            attn__kernel_files[i].who == FOR_EMULATED) {
            return true;
        }
    }
    return false;
}
inline bool is_chips_own(const char *name) {
    for (int i = 0; i < attn__n_kernel_files; i++) {
        if (std::strcmp(attn__kernel_files[i].file.name, name) == 0 &&
            attn__kernel_files[i].who != FOR_CHIPS) {
            return false;
        }
    }
    return true;
}

inline int compile(const char *entry, int files, const char *const *names,
                   const char *const *texts, int options, const char *const *option, void **code,
                   size_t *bytes) {
    const char *const arch = std::strchr(option[0], '=');
    static attn__job job;
    if (!arch) {
        return INVALID;
    }
    attn__job_begin(&job, attn__emu.target(chip_of(arch + 1)), entry);
    int own = 0;
    for (int i = 0; i < job.n_files; i++) { // those of the emulator alone stay
        if (is_emulators_own(job.file[i].name)) {
            job.file[own++] = job.file[i];
        }
    }
    job.n_files = own;
    for (int i = 0; i < files; i++) {
        bool generated = true;
        for (int j = 0; j < attn__n_kernel_files; j++) {
            generated &= std::strcmp(attn__kernel_files[j].file.name, names[i]) != 0;
        }
        if (!is_emulators_own(names[i]) && (generated || !is_chips_own(names[i]))) {
            job.file[job.n_files++] = {names[i], texts[i]};
        }
    }
    for (int i = 0; i < options; i++) {
        if (std::strncmp(option[i], "-D", 2) == 0) {
            snprintf(job.define[job.n_defines++], ATTN__DEFINE, "%s", option[i] + 2);
        }
    }
    return attn__cc.compile(&job, code, bytes) < 0 ? INVALID : 0;
}

template <const char *const *NAMES> void *load(int device, const void *code) {
    Elf64_Ehdr head;
    attn__module *module = nullptr;
    std::memcpy(&head, code, sizeof head);
    const size_t bytes = head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
    if (std::memcmp(head.e_ident, ELFMAG, 4) != 0 ||
        attn__emu.load(chip_of(NAMES[device]), code, bytes, &module) < 0) {
        return nullptr;
    }
    return module;
}
template <const char *const *NAMES> void unload(int device, void *module) {
    attn__emu.unload(chip_of(NAMES[device]), static_cast<attn__module *>(module));
}
template <const char *const *NAMES>
int number(int device, void *module, const char *name, int32_t *value) {
    return attn__emu.number(chip_of(NAMES[device]), static_cast<attn__module *>(module), name,
                            value) < 0
               ? INVALID
               : 0;
}
template <const char *const *NAMES>
int launch(int device, void *module, const char *kernel, unsigned blocks, unsigned threads,
           unsigned shared, const void *params) {
    return attn__emu.launch(chip_of(NAMES[device]), static_cast<attn__module *>(module), kernel,
                            blocks, static_cast<int>(threads), static_cast<int>(shared), params,
                            sizeof(attn_params), nullptr) < 0
               ? ILLEGAL_ADDRESS
               : 0;
}
inline int map(int is_f16, const void *at, const uint64_t *n, const uint64_t *st,
               const uint32_t *box, void *map) {
    attn__boxes b = {is_f16 ? ATTN_F16 : ATTN_BF16, at, {}, {}, {}};
    for (int i = 0; i < 4; i++) {
        b.n[i] = static_cast<int64_t>(n[i]);
        b.box[i] = static_cast<int32_t>(box[i]);
        b.st[i % 3] = static_cast<int64_t>(st[i % 3]);
    }
    return attn__emu.describe(chip_of(CUDA[0]), &b, static_cast<uint64_t *>(map)) ? 0 : INVALID;
}
template <const char *const *NAMES>
const Emulator emulator_of = {sizeof(attn_params), compile,       load<NAMES>, unload<NAMES>,
                              number<NAMES>,       launch<NAMES>, map};
inline const Emulator &emulator = emulator_of<HIP>;

// -- The library ---------------------------------------------------------------------------------

struct Library {
    std::string folder, path;
    bool is_own;
    const char *(*log)();
    void (*clear)();
    const Launch *(*last)();
    void (*fail)(const char *, int);
    void (*stop)(int);      // fake_break
    void (*room)(size_t);   // fake_room
    void (*emulate)(const Emulator *);
    int (*capture)(void *); // fake_capture
    int (*replay)(void *);  // fake_replay
    int (*live)();

    // source: tests/fake_hip.c; the variables that lead to it.
    Library(const char *source, const char *driver, const char *compiler) {
        const char *const given = std::getenv("TEST_TMPDIR");
        const char *const theirs = std::getenv("FAKE_FOLDER"); // another process's, with its cache
        is_own = !theirs;
        folder = theirs ? theirs : std::string(given ? given : "/tmp") + "/attn_fake_XXXXXX";
        if (is_own && !mkdtemp(&folder[0])) {
            abort();
        }
        path = folder + "/libfake.so";
        const std::string cc =
            std::string("cc -std=c11 -O1 -shared -fPIC ") + source + " -lpthread -o " + path;
        if (is_own && std::system(cc.c_str()) != 0) {
            abort();
        }
        setenv(driver, path.c_str(), 1);
        setenv(compiler, path.c_str(), 1);
        if (is_own) {
            setenv("ATTN_CACHE", (folder + "/cache").c_str(), 1);
        }
        void *const library = dlopen(path.c_str(), RTLD_NOW);
        const auto find = [&](auto &to, const char *name) {
            to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
            if (!to) {
                abort();
            }
        };
        find(log, "fake_log");
        find(clear, "fake_clear");
        find(last, "fake_last");
        find(fail, "fake_fail");
        find(stop, "fake_break");
        find(room, "fake_room");
        find(emulate, "fake_emulate");
        find(capture, "fake_capture");
        find(replay, "fake_replay");
        find(live, "fake_live");
    }
    ~Library() {
        if (is_own && std::system(("rm -r " + folder).c_str()) != 0) {
            std::fprintf(stderr, "a temporary folder stays\n");
        }
    }
    Library(const Library &) = delete;
};

// HIP's, with the emulator behind it.
inline const Library &hip() {
    static const Library library("tests/fake_hip.c", "ATTN_HIP", "ATTN_HIPRTC");
    static const bool once = (library.emulate(&emulator), true);
    (void)once;
    return library;
}

// CUDA's; then HIP's is there, too.
inline const Library &cuda() {
    hip();
    static const Library library("tests/fake_cuda.c", "ATTN_CUDA", "ATTN_NVRTC");
    static const bool once = (library.emulate(&emulator_of<CUDA>), true);
    (void)once;
    return library;
}

// -- A call --------------------------------------------------------------------------------------

struct Device {
    attn_device *d = nullptr;
    explicit Device(const char *name) {
        hip();
        const int status = attn_device_open(name, nullptr, &d);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
    }
    ~Device() { attn_device_release(d); }
    Device(const Device &) = delete;
};

// A compact tensor in the memory of a device; random if it has a seed.
struct Tensor {
    attn_device *d;
    std::vector<int64_t> shape;
    attn_tensor t{};
    Tensor(const Device &on, int type, std::vector<int64_t> n, uint64_t seed = 0)
        : d(on.d), shape(std::move(n)) {
        int64_t count = 1;
        for (const int64_t extent : shape) {
            count *= extent;
        }
        REQUIRE(attn_buffer_new(d, uint64_t(count * attn__type_bytes(type)), &t.data) == ATTN_OK);
        t.ndim = static_cast<int32_t>(shape.size());
        t.dtype = {static_cast<uint8_t>(type & 255), static_cast<uint8_t>(type >> 8), 1};
        t.shape = shape.data();
        if (seed) {
            REQUIRE(attn_random(d, &t, ATTN_NORMAL, seed, nullptr) == ATTN_OK);
        }
    }
    ~Tensor() { attn_buffer_release(d, t.data); }
    Tensor(const Tensor &) = delete;
    // Its elements, by a copy on `stream`.
    std::vector<float> read(void *stream = nullptr) {
        int64_t count = 1;
        for (const int64_t extent : shape) {
            count *= extent;
        }
        std::vector<float> out(static_cast<size_t>(count));
        attn_tensor here = t;
        here.data = out.data();
        here.device = {1, 0};
        here.dtype = {2, 32, 1};
        here.strides = nullptr;
        const int status = attn_tensor_copy(d, &here, &t, stream);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        return out;
    }
};

// B 2, H 4, HK 2, 40 rows and 52 keys of D 24, causal with slopes from a tensor.
struct Call {
    Tensor q, k, v, o, lse, slopes;
    attn_capture capture{};
    attn_call c{};
    attn_variant *variant = nullptr;
    attn_plan *plan = nullptr;
    void *workspace = nullptr;
    attn_device *d;
    Call(const Device &on, int type)
        : q(on, type, {2, 4, 40, 24}, 1), k(on, type, {2, 2, 52, 24}, 2),
          v(on, type, {2, 2, 52, 24}, 3), o(on, type, {2, 4, 40, 24}),
          lse(on, ATTN_F32, {2, 4, 40}), slopes(on, ATTN_F32, {4}, 4), d(on.d) {
        attn_plan_info info = {};
        info.size = sizeof info;
        capture.name = "slopes";
        capture.value = &slopes.t;
        c.size = sizeof c;
        c.q = &q.t;
        c.k = &k.t;
        c.v = &v.t;
        c.o = &o.t;
        c.lse = &lse.t;
        c.captures = &capture;
        c.n_captures = 1;
        REQUIRE(attn_variant_parse("f32 slopes[1]; k <= q ? s - slopes[h] * (q - k) : -inf",
                                   &variant) == ATTN_OK);
        const int status = attn_plan_new(d, ATTN_FORWARD, &c, variant, &plan);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        REQUIRE(attn_plan_query(plan, &info) == ATTN_OK);
        REQUIRE(attn_buffer_new(d, info.workspace, &workspace) == ATTN_OK);
    }
    ~Call() {
        attn_buffer_release(d, workspace);
        attn_plan_release(plan);
        attn_variant_release(variant);
    }
    Call(const Call &) = delete;
    void run(void *stream) {
        const int status = attn_run(plan, &c, workspace, stream);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
    }
};

} // namespace fake

#endif
