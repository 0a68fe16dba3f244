#!/usr/bin/env bash
# device_run.sh: what is run on a machine with an NVIDIA GPU, and what is packed for it.
#
#   tests/device_run.sh pack           here: builds build/device/ with what the other machine may
#                                      lack: the library, conformance, the C example, LuaJIT
#   tests/device_run.sh [STEP...]      there, in a checkout with build/device/; all steps if none is
#                                      named: probe pointers device check sanitize lua call bench
#
#   OUT        where full logs go (default build/device/out)
#   DEVICE     of `check`, `sanitize`, `one` (default cuda:0; cuda:0:compute_80: the kernels as PTX)
#   PROCESSES  at once (default: cores, less two); LIMIT, seconds of `check` and of `sanitize` (300)
#   PARTS      into which `check` deals the list (default 5 a process): what compiles long holds up
#              little. Each part draws RANDOM_N random cases, too (default 1), each followed by VARY
#              others (default 40) for which the same kernels do; SEED, the first one's seed
#   CASE       a case of the suite, for the step `one`
#   BENCH      more options of tests/bench/gpu_bench.py: '--backward --peer cudnn'
#
# It closes with a line a step, and a status that is 0 if none failed.
# shellcheck disable=SC2317 # steps are called by name
set -u
cd "$(dirname "$0")/.." || exit 1
at=build/device
out=${OUT:-$at/out}
mkdir -p "$at" "$out"

build() {
    local flags=(-std=c11 -O2 -D_POSIX_C_SOURCE=200809L -Ilib)
    tools/build.sh || return 1
    cp build/libattn.so "$at/"
    cc "${flags[@]}" tests/conformance/[a-z]*.c tests/plain*.c build/libattn.a -lm -lpthread -ldl \
        -o "$at/conformance" &&
        cc -std=c11 -O2 -Ilib examples/cuda_pointers.c build/libattn.a -lm -lpthread -ldl \
            -o "$at/cuda_pointers" &&
        cc -std=c11 -O2 -Ilib tests/bench/gpu_call.c build/libattn.a -lm -lpthread -ldl \
            -o "$at/gpu_call"
}

if [ "${1:-}" = pack ]; then
    build || exit 1
    cp "$(command -v "${LUAJIT:-luajit}")" "$at/luajit" || echo "skipped: no luajit"
    du -sh "$at"
    exit 0
fi

[ -x "$at/conformance" ] || build || exit 1

# NVRTC may stand where the loader does not look.
if [ -z "${ATTN_NVRTC:-}" ] && ! ldconfig -p | grep -q 'libnvrtc\.so\.1[123]'; then
    ATTN_NVRTC=$(find /usr/local/cuda*/ /opt /usr/lib -name 'libnvrtc.so.1[123]*' 2> /dev/null |
        grep -v alt | sort | tail -n 1)
    export ATTN_NVRTC
fi
export ATTN_CACHE=${ATTN_CACHE:-/tmp/attn_cache}
export LD_LIBRARY_PATH="$PWD/$at:${LD_LIBRARY_PATH:-}" ATTN_LIBRARY="$PWD/$at/libattn.so"

on=${DEVICE:-cuda:0}
n=${PROCESSES:-$(($(nproc) > 3 ? $(nproc) - 2 : 1))}

probe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    echo "nvrtc: ${ATTN_NVRTC:-found by the loader}"
    "$at/conformance" --device cuda:0 --case 'H=2 NQ=33 NK=65 D=16' || return 1
    "$at/conformance" --device cuda:0 --case 'dtype=bf16 H=4 NQ=200 NK=300 D=64 variant="@causal"'
}

pointers() { "$at/cuda_pointers"; }

# Graphs, streams, memory, faults: with PyTorch.
device() { python3 tests/device_check.py --library "$at/libattn.so" --suite "$at/conformance"; }

one() { "$at/conformance" --device "$on" --case "$CASE"; }

# running N: waits until fewer than N jobs run.
running() {
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n; done
}

# The list dealt to many processes, each of which draws random cases of its own, too.
check() {
    local parts=${PARTS:-$((5 * n))} end=$(($(date +%s) + ${LIMIT:-300})) i left status=0
    rm -rf "$at/parts" && mkdir -p "$at/parts"
    for ((i = 0; i < parts; i++)); do
        running "$n"
        left=$((end - $(date +%s)))
        [ "$left" -gt 0 ] || break
        {
            timeout "$left" "$at/conformance" --device "$on" --list --part "$i/$parts" \
                --random "${RANDOM_N:-1}" --vary "${VARY:-40}" --seed "$((${SEED:-1} + i))" \
                --json "$at/parts/$i.json" > "$at/parts/$i.log" 2>&1 < /dev/null
            case $? in
                0 | 1) ;;
                124) echo late > "$at/parts/$i.late" ;;
                *) echo "part $i ended by itself: status $?" > "$at/parts/$i.crash" ;;
            esac
        } &
    done
    wait
    cat "$at"/parts/*.log > "$out/conformance.log"
    cat "$at"/parts/*.json > "$out/conformance.json"
    grep -A 1 -h '^FAILED' "$at"/parts/*.log | cut -c1-400 | head -n "${SHOW:-40}"
    grep -h 'refused' "$at"/parts/*.log | sort | uniq -c | sort -rn | head -n 5
    left=$(find "$at/parts" -name '*.late' | wc -l)
    [ $((left + parts - i)) = 0 ] || status=1
    find "$at/parts" -name '*.crash' -exec cat {} + | grep . && status=1
    echo "of $parts parts $left ran out of time, $((parts - i)) were not begun"
    # What a part that ran out of time had done stands in its JSON alone.
    cat "$at"/parts/*.json | awk '/"ok":true/ {p++} /"ok":false/ && /"refused":""/ {f++}
        END {printf "%d passed, %d failed\n", p, f; exit f > 0 || p == 0}' || status=1
    return "$status"
}

# One call each under each tool of compute-sanitizer, after a run without that compiles.
sanitized=(
    'dtype=bf16 H=4 HK=2 NQ=200 NK=300 D=64 variant="@causal" sink=1'
    'dtype=f16 H=2 NQ=150 NK=500 D=128'
    'H=2 NQ=70 NK=130 D=32 dropout=0.3 dseed=7 lk=odd lo=odd'
    'dtype=bf16 B=3 H=2 D=40 packed=both qlens=5,70,0 klens=9,330,64 spare=20 ends=nan'
    'dtype=f16 B=2 H=8 HK=2 NQ=1 NK=700 D=64 variant="q - k < 300 ? s + 0.1 * k : -inf"'
    'dir=bwd dtype=bf16 H=4 HK=2 NQ=150 NK=150 D=64 variant="@causal"'
    'dir=bwd dtype=f16 H=2 NQ=130 NK=200 D=128 det=1'
    'dir=bwd H=2 NQ=40 NK=90 D=24 variant="s * t[h] + c" caps="t:f32:2:normal c=0.5"'
)
sanitize() {
    local tool i end=$(($(date +%s) + ${LIMIT:-300})) status=0 log
    mkdir -p "$at/sanitized" && rm -f "$at"/sanitized/*
    for i in "${!sanitized[@]}"; do
        running "$n"
        "$at/conformance" --device "$on" --case "${sanitized[$i]}" > "$at/sanitized/plain.$i" 2>&1 &
    done
    wait
    for tool in memcheck racecheck synccheck initcheck; do
        for i in "${!sanitized[@]}"; do
            running "$n"
            timeout "$((end > $(date +%s) ? end - $(date +%s) : 1))" \
                compute-sanitizer --tool "$tool" --error-exitcode 9 "$at/conformance" \
                --device "$on" --case "${sanitized[$i]}" > "$at/sanitized/$tool.$i" 2>&1 &
        done
    done
    wait
    for tool in plain memcheck racecheck synccheck initcheck; do
        log=$(cat "$at/sanitized/$tool".*)
        i=$(grep -c '^1 passed, 0 failed' <<< "$log")
        echo "$tool: $i of ${#sanitized[@]} passed"
        [ "$i" = ${#sanitized[@]} ] || status=1
        [ "$tool" = plain ] || [ "$(grep -Ec 'SUMMARY: 0 (errors|hazards)' <<< "$log")" = "$i" ] ||
            { grep -A 3 '^=========' <<< "$log" | grep -v '0 errors' | head -n 20; status=1; }
    done
    cat "$at"/sanitized/* > "$out/sanitized.log"
    return "$status"
}

lua() {
    [ -x "$at/luajit" ] || { echo 'skipped: no luajit' && return 0; }
    local example
    for example in examples/quickstart.lua examples/[1-5]_*.lua; do
        DEV=cuda:0 "$at/luajit" "$example" || return 1
    done
}

# What a call costs the host.
call() { "$at/gpu_call"; }

bench() {
    local more
    read -ra more <<< "${BENCH:-}"
    python3 tests/bench/gpu_bench.py --library "$at/libattn.so" --json "$out/gpu_bench.json" \
        ${QUICK:+--quick} "${more[@]}"
}

[ $# -gt 0 ] || set -- probe pointers device check sanitize lua call bench
summary=
failed=0
for step in "$@"; do
    began=$(date +%s)
    echo "== $step"
    (set -o pipefail && "$step" 2>&1 | tee "$out/$step.log")
    status=$?
    [ $status = 0 ] || failed=1
    summary="$summary$step: status $status, $(($(date +%s) - began)) s
"
done
printf '== in short\n%s' "$summary"
exit $failed
