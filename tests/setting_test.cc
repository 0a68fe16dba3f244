// setting_test.cc: environment variables that are a switch or a number.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include "host_call.h"

#include <cstdlib>
#include <string>

using namespace host;

TEST_CASE("a variable that is set to nonsense is refused") {
    const Device cpu("cpu");
    const Variant variant("s");
    Call call;
    call.fill();
    const struct {
        const char *name, *good, *wrong[3];
    } all[] = {{"ATTN_CHECK", "0", {"yes", "2", " 1"}},
               {"ATTN_SCHEDULE", "producer", {"multistaeg", "1", "0"}},
               {"ATTN_COMPILE_SECONDS", "30", {"abc", "0", "5s"}},
               {"ATTN_CACHE_MIB", "0", {"-5", "much", "99999999999999999999"}}};
    for (const auto &one : all) {
        setenv(one.name, one.good, 1);
        CHECK(run(cpu.d, ATTN_FORWARD, call.c, variant.v) == ATTN_OK);
        for (const char *const value : one.wrong) {
            setenv(one.name, value, 1);
            INFO(one.name << '=' << value);
            CHECK(run(cpu.d, ATTN_FORWARD, call.c, variant.v) == ATTN_INVALID);
            CHECK(std::string(attn_error_arg()) == one.name);
            CHECK(std::string(attn_error()).find(value) != std::string::npos);
        }
        unsetenv(one.name);
    }
}
