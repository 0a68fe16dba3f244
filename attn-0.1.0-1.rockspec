-- For LuaRocks: `luarocks --lua-version=5.1 make` in a checkout. The library is built by the C
-- compiler alone and becomes the C module attn.libattn, where lua/attn/ffi.lua finds it.
rockspec_format = "3.0"
package = "attn"
version = "0.1.0-1"
source = {
    url = "file://attn-0.1.0.tar.gz",
}
description = {
    summary = "Exact attention, its gradient and every variant of it",
    detailed = [[
A C library for exact attention and its gradient, and a LuaJIT front end in which variants of the
score and the mask are ordinary functions.]],
    license = "MIT",
}
supported_platforms = { "linux" }
dependencies = {
    "lua == 5.1",
}
build = {
    type = "command",
    build_command = "sh tools/build.sh",
    install_command = "sh tools/install.sh --rock '$(LUADIR)' '$(LIBDIR)'",
}
