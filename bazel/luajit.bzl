"""luajit_test: runs a Lua file under LuaJIT in its runfiles, where lua/ and the library are."""

load("@luajit//:defs.bzl", "LUAJIT")

_SCRIPT = """#!/bin/sh
export ATTN_LIBRARY="$PWD/{library}" LUA_PATH='lua/?.lua;;'
if [ -n "$ATTN_ASAN" ]; then # a plain luajit loads no library made with AddressSanitizer
    export LD_PRELOAD="$(gcc -print-file-name=libasan.so)"
    export ASAN_OPTIONS=allocator_may_return_null=1 # out of memory is a test of its own
    export CC="env -u LD_PRELOAD ${{CC:-cc}}"
fi
exec '{luajit}' {main} "$@"
"""

_MISSING = """#!/bin/sh
echo 'not ok 1 - luajit is not installed: apt-get install luajit'
exit 1
"""

def _luajit_test_impl(ctx):
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    text = _SCRIPT if LUAJIT else _MISSING
    ctx.actions.write(script, text.format(
        library = ctx.file.library.short_path,
        luajit = LUAJIT,
        main = ctx.file.main.short_path,
    ), is_executable = True)
    files = [ctx.file.main, ctx.file.library] + ctx.files.data
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = files))]

luajit_test = rule(
    implementation = _luajit_test_impl,
    test = True,
    attrs = {
        "main": attr.label(allow_single_file = [".lua"], mandatory = True),
        "library": attr.label(allow_single_file = True, default = "//:libattn.so"),
        "data": attr.label_list(allow_files = True, default = ["//lua"]),
    },
)
