"""External repositories: what is installed on this machine. Nothing is downloaded under Bazel 4."""

load(":catch2_configure.bzl", "catch2_configure")
load(":luajit_configure.bzl", "luajit_configure")

def attn_deps():
    """Declares every repository that //... needs."""

    # Debian's bazel-bootstrap (4.2.3) calls itself a development version: its bazel_version is "".
    # Bazel appends a default WORKSPACE suffix that would fetch these three; repositories declared
    # here under the same name win.
    version = native.bazel_version
    if not version or version.split(".")[0] in ["2", "3", "4"]:
        for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
            native.local_repository(name = name, path = "bazel/offline/" + name)
    catch2_configure(name = "catch2")
    luajit_configure(name = "luajit")
