#!/usr/bin/env bash
# house.sh: what a user and a packager rely on, in TAP: the plain compiler line, warnings, exported
# names, installation, linking, Lua from every place it may stand in, the rockspec, generated files.
#
#   tests/house.sh            LUAJIT names an interpreter; a test whose tool is missing is skipped
#
# Who calls it: tests/run.sh.
set -u
cd "$(dirname "$0")/.." || exit 1

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
luajit=${LUAJIT:-luajit}
prefix=$tmp/prefix
number=0
failed=0

# check NAME COMMAND...: a test; its output is shown where it fails.
check() {
    number=$((number + 1))
    local name=$1
    shift
    if "$@" > "$tmp/out" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$tmp/out" | tail -n 30
        failed=$((failed + 1))
    fi
}

skip() { # NAME WHY
    number=$((number + 1))
    echo "ok $number - $1 # skip $2"
}

has() { command -v "$1" > /dev/null 2>&1; }

# same WHAT EXPECTED GIVEN
same() {
    [ "$2" = "$3" ] && return
    echo "$1:"
    diff <(echo "$2") <(echo "$3")
}

# -- Compilers -------------------------------------------------------------------------------------

plain_line() {
    "$1" -shared -fPIC -O2 lib/*.c lib/emu/*.c -lm -ldl -lpthread -o "$tmp/plain-$1.so"
}
quiet_library() { "$1" -std=c11 -Wall -Wextra -Werror -fsyntax-only lib/*.c lib/emu/*.c; }
quiet_header() {
    "$1" -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c lib/attn.h &&
        "$1" -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ lib/attn.h
}
warnings_of_example() {
    "$1" -std=c11 -Wall -Wextra -Werror -Ilib -fsyntax-only examples/attention.c &&
        "$1" -x c++ -std=c++17 -Wall -Wextra -Werror -Ilib -fsyntax-only examples/attention.c
}

for cc in gcc clang; do
    if ! has "$cc"; then
        skip "$cc builds the library" "no $cc"
        continue
    fi
    check "$cc builds the library by the plain line" plain_line "$cc"
    check "$cc has no warning about the library" quiet_library "$cc"
    check "$cc takes attn.h as pedantic C11 and C++17" quiet_header "$cc"
    check "$cc takes the C example as C11 and C++17" warnings_of_example "$cc"
done

# -- The library -----------------------------------------------------------------------------------

declared() {
    grep -v '^#' lib/attn.h | tr '\n' ' ' | grep -o 'ATTN_API [^;]*;' |
        sed -E 's/^ATTN_API ([^(]*)\(.*/\1/; s/.*[ *]//' | LC_ALL=C sort
}
exported() {
    nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort
}
exports() {
    same 'declared in attn.h, exported' "$(declared | sed 's/$/@@ATTN_0/')" \
        "$(exported build/libattn.so)"
}
static_names() { # internal names of the archive are hidden, and nothing else is global
    local names
    names=$(nm -g --defined-only build/libattn.a | awk 'NF == 3 { print $3 }' | grep -v '^attn_')
    same 'global names of libattn.a that do not begin with attn_' '' "$names"
}
needed() {
    local libraries
    libraries=$(readelf -d build/libattn.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libdl|libpthread)\.so|^ld-linux')
    same 'libraries needed besides libc and libm' '' "$libraries"
}
soname() {
    same soname libattn.so.0 \
        "$(readelf -d build/libattn.so | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
}

check 'tools/build.sh builds' tools/build.sh
check 'libattn.so exports what attn.h declares' exports
check 'libattn.a has no foreign names' static_names
check 'libattn.so needs nothing but the C library' needed
check 'the SONAME is libattn.so.0' soname

# -- Installation ----------------------------------------------------------------------------------

config() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@"; }
version() {
    sed -n 's/^#define ATTN_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' lib/attn.h | paste -sd.
}
c_example() { # COMPILER FLAGS...
    local cc=$1
    shift
    # shellcheck disable=SC2046
    "$cc" "$@" examples/attention.c -o "$tmp/attention" $(config --cflags --libs attn) &&
        LD_LIBRARY_PATH=$prefix/lib "$tmp/attention"
}
static_example() {
    # shellcheck disable=SC2046
    cc examples/attention.c -o "$tmp/static" $(config --cflags attn) "$prefix/lib/libattn.a" \
        $(config --static --libs-only-l attn | sed 's/-lattn //') && "$tmp/static"
}
# The fenced blocks of README.md in one language.
readme() {
    awk -v fence="\`\`\`$1" '/^```/ { inside = $0 == fence; next } inside' README.md
}
readme_c() {
    readme c > "$tmp/readme.c"
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Wextra -Werror "$tmp/readme.c" -o "$tmp/readme" \
        $(config --cflags --libs attn) && LD_LIBRARY_PATH=$prefix/lib "$tmp/readme"
}
readme_lua() {
    readme lua > "$tmp/readme.lua"
    LUA_PATH='lua/?.lua;;' "$luajit" "$tmp/readme.lua" > "$tmp/readme.txt" &&
        same picture "$(readme text)" "$(head -n 16 "$tmp/readme.txt")"
}
# Each line of the language's block is a variant, and then what it is.
readme_variants() {
    awk '/^```/ { inside = !inside; next } inside && /  (causal|the |ALiBi|softcap|documents)/' \
        README.md | sed 's/   .*//' > "$tmp/variants"
    [ "$(wc -l < "$tmp/variants")" -ge 5 ] || return 1
    LUA_PATH='lua/?.lua;;' "$luajit" -e "
        local attn = require 'attn'
        for line in io.lines '$tmp/variants' do
            print(attn.variant(line))
        end"
}
staged() {
    DESTDIR=$tmp/stage LIBDIR=/usr/lib/x LUADIR=/usr/share/lua/5.1 tools/install.sh /usr &&
        (cd "$tmp/stage/usr" && ls include/attn.h lib/x/libattn.so.0 share/lua/5.1/attn.lua) &&
        grep '^libdir=/usr/lib/x$' "$tmp/stage/usr/lib/x/pkgconfig/attn.pc"
}

check 'tools/install.sh installs into a prefix' tools/install.sh "$prefix"
check 'tools/install.sh honours DESTDIR, LIBDIR and LUADIR' staged
if has pkg-config; then
    check 'pkg-config knows the version' same version "$(version)" "$(config --modversion attn)"
    check 'the C example links by pkg-config and is right' c_example cc -std=c11
    check 'the C example as C++17' c_example c++ -x c++ -std=c++17
    check 'the C example with the static library' static_example
    check "README's C program" readme_c
else
    skip 'the C example links by pkg-config' 'no pkg-config'
fi

# -- Lua -------------------------------------------------------------------------------------------

# lua FOLDER VARIABLE=VALUE...: requires attn in that folder with these variables alone, and calls.
lua() {
    local folder=$1
    shift
    echo "
        local attn = require 'attn'
        assert(attn.version() == '$(version)', attn.version())
        local q = attn.randn(1, {1, 1, 4, 8}, {seed = 1})
        local o = attn.attention(q, q, q, {variant = attn.causal})
        assert(o[0][0][0]:max_error(q[0][0][0]) == 0, 'the first row sees itself alone')
        print(require 'attn.ffi'.path)" > "$tmp/require.lua"
    (cd "$folder" && env -i "$@" "$(command -v "$luajit")" "$tmp/require.lua")
}
five_one() {
    same sentence 'lua5.1: attn needs LuaJIT, and this is Lua 5.1: run the script with luajit' \
        "$(LUA_PATH='lua/?.lua;;' lua5.1 -e "require 'attn'" 2>&1 | head -n 1)"
}
rock() {
    luarocks --lua-version=5.1 --tree="$tmp/tree" make attn-*.rockspec < /dev/null
}

check 'Lua from the build tree, nothing set' lua . ATTN_=
check 'Lua from the build tree, LUA_PATH' lua . "LUA_PATH=lua/?.lua;;"
check 'Lua from the build tree, another folder' lua / "LUA_PATH=$PWD/lua/?.lua;;"
check 'Lua with ATTN_LIBRARY' lua . "LUA_PATH=lua/?.lua;;" "ATTN_LIBRARY=$tmp/plain-gcc.so"
check 'Lua from the prefix' lua / "LUA_PATH=$prefix/share/lua/5.1/?.lua;;" \
    "LD_LIBRARY_PATH=$prefix/lib"
check "README's Lua" readme_lua
check "README's variants" readme_variants
if has lua5.1; then
    check 'plain Lua 5.1 gets a sentence' five_one
else
    skip 'plain Lua 5.1 gets a sentence' 'no lua5.1'
fi
if has luarocks; then
    check 'luarocks lint' luarocks lint attn-*.rockspec
    check 'luarocks make' rock
    check 'Lua from the rock' lua / "LUA_PATH=$tmp/tree/share/lua/5.1/?.lua;;" \
        "LUA_CPATH=$tmp/tree/lib/lua/5.1/?.so;;"
else
    skip 'the rock' 'no luarocks'
fi

# -- Files that repeat others ----------------------------------------------------------------------

versions() {
    same 'version in the rockspec name' "attn-$(version)-1.rockspec" "$(ls attn-*.rockspec)" &&
        grep "^version = \"$(version)-1\"" attn-*.rockspec &&
        grep "version = \"$(version)\"" MODULE.bazel &&
        grep "^## $(version)" CHANGELOG.md
}
check 'one version everywhere' versions
for generator in tools/gen_*.lua; do
    check "what $generator writes is up to date" \
        env "LUA_PATH=lua/?.lua;;" "$luajit" "$generator" --check
done

echo "1..$number"
[ "$failed" = 0 ]
