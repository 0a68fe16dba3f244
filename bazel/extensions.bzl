"""The module extension of MODULE.bazel: the repositories of deps.bzl."""

load(":catch2_configure.bzl", "catch2_configure")
load(":luajit_configure.bzl", "luajit_configure")

def _machine_impl(_ctx):
    catch2_configure(name = "catch2")
    luajit_configure(name = "luajit")

machine = module_extension(implementation = _machine_impl)
