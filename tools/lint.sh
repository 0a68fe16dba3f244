#!/usr/bin/env bash
# lint.sh: the house's rules that a tool can check, one TAP line each, and the installed linters.
#
#   tools/lint.sh             in a checkout; a linter that is not here is skipped, and said
#
# Who calls it: tests/run.sh.
set -u
shopt -s lastpipe # rule counts in this shell, not in a pipeline's
cd "$(dirname "$0")/.." || exit 1

number=0
failed=0

# rule NAME: reads the violations from standard input; none is right.
rule() {
    local found
    found=$(cat)
    number=$((number + 1))
    if [ -z "$found" ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        printf '%s\n' "$found" | sed 's/^/# /'
        failed=$((failed + 1))
    fi
}

skip() { # TOOL
    number=$((number + 1))
    echo "ok $number - $1 # skip no $1"
    echo "skipped: no $1"
}

# files PATTERN...: this project's files, committed or not, without what is ignored.
files() {
    git ls-files -co --exclude-standard -- "$@" | grep -v '^tests/data/\|^tests/fuzz/corpus/'
}
each() { files "$@" | xargs -r -d '\n' "${command[@]}"; }

c_files=('*.c' '*.h' '*.cc' '*.hip')
code=("${c_files[@]}" '*.lua' '*.sh' '*.bzl' '*BUILD' '.ci/run')
generated='lua/attn/cdef\.lua|lib/kernel_text\.c|docs/(ops|errors|variants)\.md'

# -- Sizes -----------------------------------------------------------------------------------------

# A test file may be longer: it follows the part that it tests.
files "${code[@]}" | grep -vE "^($generated)\$" | while read -r file; do
    lines=$(wc -l < "$file")
    case $file in tests/*) most=800 ;; *) most=450 ;; esac
    [ "$lines" -le "$most" ] || echo "$file: $lines lines"
done | rule 'files have about 400 lines: 450 at most, tests 800'

# A function begins with a line at the margin and ends at the next closing line there.
# shellcheck disable=SC2016
command=(awk '
    FNR == 1 { begin = 0 }
    !begin && (/^[A-Za-z_].*[({,]$/ || /^(local )?function /) &&
        !/^(class|struct|union|enum|typedef|namespace|extern) |= \{$/ { begin = FNR; name = $0 }
    /^\}/ || /^end/ || /^[^ ].*;$/ {
        if (begin && FNR - begin >= 60) {
            printf "%s:%d: %d lines: %s\n", FILENAME, begin, FNR - begin + 1, name
        }
        begin = 0
    }')
each '*.c' '*.h' '*.hip' '*.lua' | rule 'functions have at most 60 lines'

# shellcheck disable=SC2016
command=(awk '
    FNR == 1 { off = 0 }
    /clang-format off/ { off = 1 }
    /clang-format on/ { off = 0 }
    !off && length($0) > 100 { printf "%s:%d: %d columns\n", FILENAME, FNR, length($0) }')
each "${code[@]}" | LC_ALL=C.UTF-8 grep -vE "^($generated):" | rule 'lines have at most 100 columns'

command=(grep -nHP '\t| +$')
each "${code[@]}" '*.md' | rule 'no tabs, no blanks at the end of a line'

# A formatter that wraps comments breaks these, and what follows is no heading any more.
command=(grep -nHP '^/\* -- (?!.* \*/$)')
each "${c_files[@]}" | rule 'headings stay on their line'

# -- Words -----------------------------------------------------------------------------------------

files "${code[@]}" | grep -v 'BUILD$' | while read -r file; do
    [ -s "$file" ] || continue
    head -n 2 "$file" | grep -qE '^(/\*|//|--|#[^!]|""")' || echo "$file: no opening comment"
done | rule 'every file opens with a comment'

words='TODO|FIXME|XXX|not implemented|not yet implemented|\bstub\b|placeholder'
command=(grep -nHwE "$words")
each "${code[@]}" '*.md' | grep -v '^tools/lint\.sh:' | rule 'no words of unfinished work'

command=(grep -nHE '(^|[^A-Za-z0-9_.])/(work|farm|home|root)/')
each '*' | rule 'no paths of one machine'

# Only these know vendors (attn.h: the numbers of DLPack).
command=(grep -nHwiE 'nvidia|cuda|rocm|hip|amd')
chips='(target|gpu|jit)(_[a-z0-9]+)?|kernel_text|attn|emu/[a-z0-9_/]+'
each 'lib/*.c' 'lib/*.h' | grep -vE "^lib/($chips)\.[ch]:" |
    rule 'vendors are named where chips are'

# The same of kernels: core/ and sched/ know no chip (sched/producer.h says whose schedule it is).
kernels=('hip_kernels/*.h' 'hip_kernels/*.hip')
known='^hip_kernels/((arch|isa)/[a-z0-9_]+|target|core/config)\.h:'
chip='__CUDA|__gfx|__HIP|__NV|__AMD|ATTN_CHIP|ATTN_EMU|ATTN_HAS_(CP_ASYNC|ADD_4|FLUSHING_MFMA|XCD)'
command=(grep -nHiE "$chip|nvidia|cuda|rocm|amdgpu|\bamd\b")
each "${kernels[@]}" | grep -vE "$known" |
    rule 'kernels know their chip in arch/, isa/, target.h alone'

command=(grep -nHE '__builtin_|\b(__)?asm(__)?\b')
each "${kernels[@]}" | grep -v '^hip_kernels/isa/' |
    rule 'builtins and assembly stand in isa/ alone'

# What kernels may call, isa_... and shared_at being a file's own: a chip's and its model's alike.
names() {
    local at='^DEV .*[ *]([a-z0-9_]+)\(|^#define [a-z][a-z0-9_]*\(|^[A-Z][A-Z0-9_]+\([a-z0-9_]+'
    grep -ohE "$at" "$@" |
        sed -E 's/^(DEV [^(]*[ *]|#define |[A-Z0-9_]+\()([a-z0-9_]+).*/\2/' |
        grep -vE '^(isa_.*|shared_at)$' | sort -u
}
for isa in ptx gcn ptx_sm90; do
    shared=lib/emu/isa/common.h
    [ "$isa" != ptx_sm90 ] || shared=/dev/null # comes behind ptx.h
    diff <(names "hip_kernels/isa/$isa.h") <(names "lib/emu/isa/$isa.h" "$shared") |
        grep '^[<>]' | sed "s/^</$isa.h alone has/; s/^>/the model of $isa.h alone has/"
done | rule 'models of instructions have the names of the instructions'

# -- Linters ---------------------------------------------------------------------------------------

if command -v luacheck > /dev/null; then
    files '*.lua' '*.rockspec' |
        xargs -d '\n' luacheck --std luajit --no-unused-args --quiet --no-color --codes 2>&1 |
        grep -E ': \([EW]|^Critical' | rule 'luacheck'
else
    skip luacheck
fi
if command -v cppcheck > /dev/null; then
    # uninitvar takes vector types and loops of at least one round wrongly; the compilers see those.
    cppcheck --quiet --std=c11 --language=c \
        --suppress=uninitvar --suppress=negativeIndex:lib/bind.c \
        --template='{file}:{line}: {severity}: {message} [{id}]' -I lib lib/*.c examples/*.c 2>&1 |
        grep ' error: ' | rule 'cppcheck'
else
    skip cppcheck
fi
if command -v shellcheck > /dev/null; then
    files '*.sh' '.ci/run' | xargs -d '\n' shellcheck -x 2>&1 | rule 'shellcheck'
else
    skip shellcheck
fi

echo "1..$number"
[ "$failed" = 0 ]
