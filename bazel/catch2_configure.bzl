"""@catch2//:main: the machine's Catch2, 2.13 or 3, with a main().

Tests include <catch2/catch_all.hpp> where it exists (3), else <catch2/catch.hpp> (2.13). Version 2
is one header, whose main is compiled here once; version 3 brings a library. CATCH2_HOME names a
prefix to look in before the usual ones.
"""

_V2 = """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "main",
    srcs = ["main.cc"],
    hdrs = glob(["include/**"]),
    includes = ["include"],
    alwayslink = True,
    linkstatic = True,
    visibility = ["//visibility:public"],
)
"""

_V3 = """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "main",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = ["-L%s", "-lCatch2Main", "-lCatch2"],
    visibility = ["//visibility:public"],
)
"""

_MISSING = """
genrule(
    name = "main",
    outs = ["catch2_is_missing"],
    cmd = "echo 'Catch2 is not installed: apt-get install catch2' >&2; exit 1",
    visibility = ["//visibility:public"],
)
"""

def _library_folder(rctx, prefix):
    for folder in rctx.path(prefix).readdir():
        if folder.basename.startswith("lib"):
            for sub in [folder] + folder.readdir():
                if rctx.path(str(sub) + "/libCatch2Main.a").exists:
                    return str(sub)
    return None

def _catch2_configure_impl(rctx):
    home = rctx.os.environ.get("CATCH2_HOME", "")
    for prefix in ([home] if home else []) + ["/usr/local", "/usr"]:
        include = prefix + "/include/catch2"
        if rctx.path(include + "/catch_all.hpp").exists:
            folder = _library_folder(rctx, prefix)
            if folder:
                rctx.symlink(include, "include/catch2")
                rctx.file("BUILD", _V3 % folder)
                return
        if rctx.path(include + "/catch.hpp").exists:
            rctx.symlink(include, "include/catch2")
            rctx.file("main.cc", "#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n")
            rctx.file("BUILD", _V2)
            return
    rctx.file("BUILD", _MISSING)

catch2_configure = repository_rule(
    implementation = _catch2_configure_impl,
    environ = ["CATCH2_HOME"],
    configure = True,
    local = True,
)
