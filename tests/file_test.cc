// file_test.cc: what attn_file_open and attn_file_parse leave behind when they refuse.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "attn.h"

#include <cstring>

TEST_CASE("a refused file leaves NULL") {
    int here = 0; // what is no handle
    const struct {
        const char *kind, *text;
        int status;
    } rows[] = {{"npy", "nonsense", ATTN_PARSE},
                {"safetensors", "nonsense", ATTN_PARSE},
                {"xyz", "nonsense", ATTN_INVALID},
                {nullptr, "nonsense", ATTN_INVALID},
                {"npy", nullptr, ATTN_INVALID}};
    for (const auto &row : rows) {
        auto *file = reinterpret_cast<attn_file *>(&here);
        REQUIRE(attn_file_parse(row.kind, row.text, 8, &file) == row.status);
        REQUIRE(file == nullptr);
    }
    for (const char *path : {"/nonexistent/x.npy", "/tmp", static_cast<const char *>(nullptr)}) {
        auto *file = reinterpret_cast<attn_file *>(&here);
        REQUIRE(attn_file_open(path, &file) == (path ? ATTN_IO : ATTN_INVALID));
        REQUIRE(file == nullptr);
    }
    REQUIRE(attn_file_open("x.npy", nullptr) == ATTN_INVALID);
    REQUIRE(attn_file_parse("npy", "x", 1, nullptr) == ATTN_INVALID);
}

TEST_CASE("a device is no file to read") {
    attn_file *file = nullptr;
    REQUIRE(attn_file_open("/dev/null", &file) == ATTN_IO);
    REQUIRE(std::strstr(attn_error(), "not a regular file") != nullptr);
}
