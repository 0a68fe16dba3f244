#!/bin/sh
# build.sh: builds build/libattn.so and build/libattn.a with a C compiler alone.
#
#   tools/build.sh            CC, CFLAGS and LDFLAGS are honoured; what is up to date is left alone
#
# Who calls it: examples/quickstart.sh, tools/install.sh, the rockspec. lib/BUILD is Bazel's.
set -eu
cd "$(dirname "$0")/.."

cc=${CC:-cc}
flags="-std=c11 -O2 -Wall -Wextra ${CFLAGS:-} -fPIC -fvisibility=hidden"
mkdir -p build/obj

# Another compiler, other flags, a file added or removed, a newer header: everything is stale.
line="$cc $flags ${LDFLAGS:-} $(echo lib/*.c lib/emu/*.c)"
if [ "$(cat build/obj/line 2> /dev/null)" != "$line" ] ||
    [ -n "$(find lib/*.h lib/emu/*.h lib/emu/isa/*.h hip_kernels/core/*.h lib/attn.map \
        tools/build.sh -newer build/obj/line)" ]; then
    rm -f build/obj/*.o
    printf '%s\n' "$line" > build/obj/line
fi

todo=
for source in lib/*.c lib/emu/*.c; do
    object=build/obj/$(basename "$source" .c).o
    if [ ! -e "$object" ] || [ -n "$(find "$source" -newer "$object")" ]; then
        todo="$todo $source"
    fi
done
if [ -z "$todo" ] && [ -e build/libattn.so ] && [ -e build/libattn.a ] &&
    [ -z "$(find build/obj/*.o -newer build/libattn.a)" ]; then # newer: linking failed
    exit 0
fi
# shellcheck disable=SC2086
[ -z "$todo" ] || printf '%s\n' $todo |
    xargs -P "$(nproc)" -I{} sh -c "$cc $flags -c {} -o build/obj/\$(basename {} .c).o"

# Written beside and renamed: a program that has the old library open keeps it.
# shellcheck disable=SC2086
$cc -shared ${LDFLAGS:-} -o build/obj/libattn.so build/obj/*.o -Wl,-soname,libattn.so.0 \
    -Wl,--version-script=lib/attn.map -Wl,-z,defs -Wl,--as-needed -lm -ldl -lpthread
rm -f build/obj/libattn.a
ar rcs build/obj/libattn.a build/obj/*.o
mv build/obj/libattn.so build/obj/libattn.a build/
