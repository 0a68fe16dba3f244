#!/bin/sh
# install.sh: installs library, header, pkg-config file and Lua modules.
#
#   tools/install.sh PREFIX                 DESTDIR, LIBDIR (PREFIX/lib) and LUADIR
#                                           (PREFIX/share/lua/5.1) are honoured
#   tools/install.sh --rock LUADIR LIBDIR   what LuaRocks takes: attn.libattn as a C module
#
#   PREFIX/include/attn.h
#   PREFIX/lib/libattn.so -> libattn.so.0 -> libattn.so.0.1.0, libattn.a, pkgconfig/attn.pc
#   PREFIX/share/lua/5.1/attn.lua, attn/*.lua
set -eu

usage() {
    sed -n 's/^#   //p' "$0" | head -n 3 >&2
    exit 2
}

lua_modules() { # TO
    mkdir -p "$1/attn"
    cp "$root/lua/attn.lua" "$1/"
    cp "$root"/lua/attn/*.lua "$1/attn/"
}

root=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
--rock)
    [ $# = 3 ] || usage
    "$root/tools/build.sh"
    lua_modules "$2"
    mkdir -p "$3/attn"
    cp "$root/build/libattn.so" "$3/attn/"
    exit 0
    ;;
/*) prefix=${1%/} ;;
'' | -*) usage ;;
*) prefix=$(pwd)/${1%/} ;;
esac

number() { sed -n "s/^#define ATTN_VERSION_$1 \([0-9]*\)$/\1/p" "$root/lib/attn.h"; }
major=$(number MAJOR)
version=$major.$(number MINOR).$(number PATCH)
libdir=${LIBDIR:-$prefix/lib}
luadir=${LUADIR:-$prefix/share/lua/5.1}
dest=${DESTDIR:-}

"$root/tools/build.sh"
mkdir -p "$dest$prefix/include" "$dest$libdir/pkgconfig"
cp "$root/lib/attn.h" "$dest$prefix/include/"
cp "$root/build/libattn.a" "$dest$libdir/"
cp "$root/build/libattn.so" "$dest$libdir/.libattn.so.new"
mv "$dest$libdir/.libattn.so.new" "$dest$libdir/libattn.so.$version"
ln -sf "libattn.so.$version" "$dest$libdir/libattn.so.$major"
ln -sf "libattn.so.$major" "$dest$libdir/libattn.so"
lua_modules "$dest$luadir"
cat > "$dest$libdir/pkgconfig/attn.pc" <<PC
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: attn
Description: exact attention, its gradient and every variant of it
Version: $version
Libs: -L\${libdir} -lattn
Libs.private: -lm -ldl -lpthread
Cflags: -I\${includedir}
PC
