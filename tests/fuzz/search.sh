#!/usr/bin/env bash
# search.sh: lets libFuzzer search for a while; what ends the program stays in build/fuzz/.
#
#   tests/fuzz/search.sh parse|graph|npy|safetensors [SECONDS]      needs clang with its compiler-rt
#
# New inputs go to build/fuzz/NAME; that of a mended fault belongs into tests/fuzz/corpus/NAME.
set -eu
cd "$(dirname "$0")/../.."
name=$1
mkdir -p "build/fuzz/$name"
"${CLANG:-clang}" -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    -Ilib -o "build/fuzz/fuzz_$name" "tests/fuzz/fuzz_$name.c" tests/fuzz/fuzz_{file,variant}.c \
    lib/*.c lib/emu/*.c -lm -ldl -lpthread
exec "build/fuzz/fuzz_$name" -max_total_time="${2:-300}" -max_len=4096 -timeout=10 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/$name" "tests/fuzz/corpus/$name"
