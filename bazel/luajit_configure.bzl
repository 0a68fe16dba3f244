"""@luajit//:defs.bzl: LUAJIT, the interpreter: the variable of that name, else the machine's."""

def _luajit_configure_impl(rctx):
    luajit = rctx.os.environ.get("LUAJIT", "") or rctx.which("luajit") or ""
    rctx.file("BUILD", "")
    rctx.file("defs.bzl", "LUAJIT = %r\n" % str(luajit))

luajit_configure = repository_rule(
    implementation = _luajit_configure_impl,
    environ = ["LUAJIT", "PATH"],
    configure = True,
    local = True,
)
