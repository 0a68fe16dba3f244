// memory_test.cc: buffers that are used again in the order of streams, against the look-alike of
// HIP's library (fake_hip.c), which works as late as it may.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "fake_gpu_test.h"

#include <string>
#include <vector>

namespace {

using fake::hip;

struct Device {
    attn_device *d = nullptr;
    void *a, *b; // streams
    Device() {
        hip();
        REQUIRE(attn_device_open("hip:1", nullptr, &d) == ATTN_OK);
        REQUIRE(attn_stream_new(d, &a) == ATTN_OK);
        REQUIRE(attn_stream_new(d, &b) == ATTN_OK);
    }
    ~Device() {
        attn_stream_release(d, a);
        attn_stream_release(d, b);
        attn_device_release(d);
    }
    Device(const Device &) = delete;
    void *get(uint64_t bytes, void *stream = nullptr) const {
        void *p = nullptr;
        const int status = attn_buffer_new_on(d, bytes, stream, &p);
        INFO(attn_error());
        REQUIRE(status == ATTN_OK);
        return p;
    }
    uint64_t used() const {
        attn_device_info info = {};
        info.size = sizeof info;
        REQUIRE(attn_device_query(d, &info) == ATTN_OK);
        return info.used;
    }
    // A copy within the device, which happens when the stream is awaited.
    void copy(void *to, void *from, int64_t bytes, void *stream) const {
        const attn_tensor t = tensor(to, 10, &bytes), f = tensor(from, 10, &bytes);
        REQUIRE(attn_tensor_copy(d, &t, &f, stream) == ATTN_OK);
    }
    void write(void *to, char value, int64_t bytes) const {
        std::vector<char> from(static_cast<size_t>(bytes), value);
        const attn_tensor t = tensor(to, 10, &bytes), f = tensor(from.data(), 1, &bytes);
        REQUIRE(attn_tensor_copy(d, &t, &f, nullptr) == ATTN_OK);
    }
    char first(void *from, void *stream) const {
        char x = 0;
        int64_t one = 1;
        const attn_tensor t = tensor(&x, 1, &one), f = tensor(from, 10, &one);
        REQUIRE(attn_tensor_copy(d, &t, &f, stream) == ATTN_OK);
        return x;
    }
    static attn_tensor tensor(void *data, int kind, int64_t *bytes) {
        return {data, {kind, kind == 10 ? 1 : 0}, 1, {1, 8, 1}, bytes, nullptr, 0};
    }
};

// An entry of the look-alike.
template <typename F> F *own(const char *name) {
    return reinterpret_cast<F *>(dlsym(dlopen(hip().path.c_str(), RTLD_NOW), name));
}

int count(const std::string &word) {
    const std::string log = hip().log();
    int n = 0;
    for (size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) {
        n++;
    }
    return n;
}

} // namespace

TEST_CASE("what NULL alone used is used again at once, and asks nothing of the driver") {
    const Device on;
    void *const first = on.get(1000);
    CHECK(on.used() == 1000);
    attn_buffer_retire(on.d, first);
    CHECK(on.used() == 0);
    hip().clear();
    CHECK(on.get(1010) == first); // of about that size
    CHECK(std::string(hip().log()).empty());
    CHECK(on.used() == 1010);
    void *const other = on.get(1010);
    CHECK(other != first);
    CHECK(count("hipMalloc") == 1);
    attn_buffer_retire(on.d, first);
    attn_buffer_retire(on.d, other);
    CHECK(on.get(100000) != first);
    CHECK(count("hipFree") == 0);
}

TEST_CASE("what a stream used is used again when its work has ended") {
    const Device on;
    void *const from = on.get(5000), *const memory = on.get(5000), *const result = on.get(5000);
    on.write(from, 1, 5000);
    on.write(memory, 2, 5000);
    on.copy(result, memory, 5000, on.a); // late
    REQUIRE(attn_buffer_use(on.d, memory, on.a) == ATTN_OK);
    attn_buffer_retire(on.d, memory);
    // Had it the same memory, this copy would come before the first one.
    void *const next = on.get(5000, on.b);
    CHECK(next != memory);
    on.copy(next, from, 5000, on.b);
    CHECK(on.first(next, on.b) == 1);
    CHECK(on.get(5000) != memory);
    CHECK(on.first(result, on.a) == 2); // awaited
    CHECK(on.get(5000) == memory);
}

TEST_CASE("several streams are all awaited") {
    const Device on;
    void *const source = on.get(3000), *const memory = on.get(3000);
    for (void *const stream : {on.a, on.b, on.a}) {
        on.copy(memory, source, 3000, stream);
        REQUIRE(attn_buffer_use(on.d, memory, stream) == ATTN_OK);
    }
    attn_buffer_retire(on.d, memory);
    REQUIRE(attn_stream_sync(on.d, on.b) == ATTN_OK);
    void *const other = on.get(3000);
    CHECK(other != memory);
    REQUIRE(attn_stream_sync(on.d, on.a) == ATTN_OK);
    CHECK(on.get(3000) == memory);
}

TEST_CASE("more streams than a block remembers, and none is waited for") {
    const Device on;
    void *const source = on.get(7000), *const memory = on.get(7000);
    std::vector<void *> streams(6);
    hip().clear();
    for (void *&stream : streams) {
        REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
        on.copy(memory, source, 7000, stream);
        REQUIRE(attn_buffer_use(on.d, memory, stream) == ATTN_OK);
    }
    attn_buffer_retire(on.d, memory);
    CHECK(on.get(7000) != memory);
    CHECK(count("Synchronize") == 0);
    for (void *const stream : streams) {
        REQUIRE(attn_stream_sync(on.d, stream) == ATTN_OK);
        attn_stream_release(on.d, stream);
    }
    CHECK(on.get(7000) == memory);
}

TEST_CASE("streams that are gone are remembered, under another one's handle too") {
    const Device on;
    void *const memory = on.get(6000);
    on.write(memory, 2, 6000);
    std::vector<void *> results(6);
    void *handle = nullptr;
    const auto made = own<int(void **, unsigned)>("hipStreamCreateWithFlags");
    REQUIRE(own<int(int)>("hipSetDevice")(1) == 0);
    for (void *&result : results) {
        void *stream;
        result = on.get(6000);
        REQUIRE(made(&stream, 1) == 0); // the caller's own, which NULL does not wait for
        CHECK((!handle || stream == handle));
        handle = stream;
        on.copy(result, memory, 6000, stream); // late
        REQUIRE(attn_buffer_use(on.d, memory, stream) == ATTN_OK);
        if (result == results.back()) {
            REQUIRE(attn_stream_sync(on.d, stream) == ATTN_OK);
        }
        attn_stream_release(on.d, stream);
    }
    attn_buffer_retire(on.d, memory);
    on.write(on.get(6000), 1, 6000); // at once
    REQUIRE(own<int()>("hipDeviceSynchronize")() == 0);
    REQUIRE(own<int(int)>("hipSetDevice")(0) == 0);
    for (void *const result : results) {
        CHECK(on.first(result, nullptr) == 2);
    }
}

TEST_CASE("a stream that is gone is one of more than a block remembers") {
    const Device on;
    void *const memory = on.get(8000), *const result = on.get(8000);
    std::vector<void *> streams(5);
    for (void *&stream : streams) {
        REQUIRE(attn_stream_new(on.d, &stream) == ATTN_OK);
    }
    on.copy(result, memory, 8000, streams[0]);
    REQUIRE(attn_buffer_use(on.d, memory, streams[0]) == ATTN_OK);
    attn_stream_release(on.d, streams[0]);
    CHECK(attn_stream_sync(on.d, streams[0]) == ATTN_DRIVER); // the driver is strict about it
    for (size_t i = 1; i < streams.size(); i++) {
        REQUIRE(attn_buffer_use(on.d, memory, streams[i]) == ATTN_OK);
    }
    attn_buffer_retire(on.d, memory);
    for (size_t i = 1; i < streams.size(); i++) {
        attn_stream_release(on.d, streams[i]);
    }
    CHECK(on.get(8000) != memory); // the last stream's mark is behind the first one's copy
}

TEST_CASE("another stream has what NULL used when that has ended") {
    const Device on;
    void *const source = on.get(9000), *const memory = on.get(9000);
    on.copy(memory, source, 9000, nullptr);
    attn_buffer_retire(on.d, memory);
    CHECK(on.get(9000, on.a) != memory);
    REQUIRE(attn_stream_sync(on.d, nullptr) == ATTN_OK);
    CHECK(on.get(9000, on.a) == memory);
}

TEST_CASE("memory that is kept comes before no memory; trim gives it back") {
    const Device on;
    const uint64_t large = uint64_t{1} << 30;
    hip().room(2 * large + 4096);
    void *const a = on.get(large), *const b = on.get(large);
    void *c = nullptr;
    CHECK(attn_buffer_new_on(on.d, large, nullptr, &c) == ATTN_MEMORY);
    CHECK(std::string(attn_error()).find("2147483648 are in use here") != std::string::npos);
    const int live = hip().live();
    attn_buffer_retire(on.d, a);
    CHECK(hip().live() == live);
    REQUIRE(attn_buffer_trim(on.d) == ATTN_OK);
    CHECK(hip().live() == live - 1);
    attn_buffer_retire(on.d, b);
    hip().room(0);
    hip().clear();
    hip().fail("hipMalloc", fake::OUT_OF_MEMORY);
    void *const d = on.get(300); // after what is kept was given back
    CHECK(count("hipFree") == 1);
    CHECK(count("hipMalloc") == 2);
    attn_buffer_release(on.d, d);
    CHECK(count("hipFree") == 2);
}

TEST_CASE("a device that is closed gives everything back") {
    const int live = hip().live();
    {
        const Device on;
        for (const uint64_t bytes : {1, 600, 70000}) {
            attn_buffer_retire(on.d, on.get(bytes));
        }
        CHECK(hip().live() == live + 3);
        int x = 0;
        CHECK(attn_buffer_use(on.d, &x, on.a) == ATTN_INVALID);
    }
    CHECK(hip().live() == live);
}

TEST_CASE("a host's memory goes back at once") {
    attn_device *d;
    REQUIRE(attn_device_open("cpu", nullptr, &d) == ATTN_OK);
    void *p;
    REQUIRE(attn_buffer_new_on(d, 100, nullptr, &p) == ATTN_OK);
    CHECK(attn_buffer_use(d, p, nullptr) == ATTN_OK);
    CHECK(attn_buffer_trim(d) == ATTN_OK);
    attn_buffer_retire(d, p);
    attn_device_release(d);
}
