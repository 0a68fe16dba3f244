#!/usr/bin/env bash
# device_run.sh: what is run on a machine with an NVIDIA GPU, and what is packed for it.
#
#   tests/device_run.sh pack           here: builds build/device/ with what the other machine may
#                                      lack: the library, conformance, the C example, LuaJIT
#   tests/device_run.sh [STEP...]      there, in a checkout with build/device/; all steps if none is
#                                      named: probe pointers device check lua call bench
#
#   OUT        where full logs go (default build/device/out)
#   RANDOM_N   random cases of the suite a process (default 20), each followed by VARY others
#              (default 0) for which the same kernels do; SEED, the first one's seed
#   PROCESSES  of the suite at once (default: cores, less two); LIMIT, seconds of `check` (300)
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

probe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    echo "nvrtc: ${ATTN_NVRTC:-found by the loader}"
    "$at/conformance" --device cuda:0 --case 'H=2 NQ=33 NK=65 D=16' || return 1
    "$at/conformance" --device cuda:0 --case 'dtype=bf16 H=4 NQ=200 NK=300 D=64 variant="@causal"'
}

pointers() { "$at/cuda_pointers"; }

# Graphs, streams, memory, faults: with PyTorch.
device() { python3 tests/device_check.py --library "$at/libattn.so" --suite "$at/conformance"; }

one() { "$at/conformance" --device cuda:0 --case "$CASE"; }

# The list dealt to many processes, each of which draws random cases of its own, too.
check() {
    local n=${PROCESSES:-$(($(nproc) > 3 ? $(nproc) - 2 : 1))} i pids=() status=0
    rm -rf "$at/parts" && mkdir -p "$at/parts"
    for ((i = 0; i < n; i++)); do
        timeout "${LIMIT:-300}" "$at/conformance" --device cuda:0 --list --part "$i/$n" \
            --random "${RANDOM_N:-20}" --vary "${VARY:-0}" \
            --seed "$((${SEED:-1} + i))" --json "$at/parts/$i.json" \
            > "$at/parts/$i.log" 2>&1 < /dev/null &
        pids+=($!)
    done
    for i in "${!pids[@]}"; do
        wait "${pids[$i]}"
        [ $? = 124 ] && echo "part $i: out of time" && status=1
    done
    cat "$at"/parts/*.log > "$out/conformance.log"
    cat "$at"/parts/*.json > "$out/conformance.json"
    grep -A 1 -h '^FAILED' "$at"/parts/*.log | cut -c1-400 | head -n "${SHOW:-40}"
    grep -h 'refused' "$at"/parts/*.log | sort | uniq -c | sort -rn | head -n 5
    # What a part that ran out of time had done stands in its JSON alone.
    for ((i = 0; i < n; i++)); do
        grep -E '^[0-9]+ passed, [0-9]+ failed$' "$at/parts/$i.log" ||
            echo "$(grep -c '"ok":true' "$at/parts/$i.json") passed," \
                "$(grep -c '^FAILED' "$at/parts/$i.log") failed"
    done | awk '{p += $1; f += $3} END {printf "%d passed, %d failed\n", p, f; exit f > 0}' ||
        status=1
    return "$status"
}

lua() {
    [ -x "$at/luajit" ] || { echo 'skipped: no luajit' && return 0; }
    DEV=cuda:0 LUA_PATH='lua/?.lua;;' "$at/luajit" examples/quickstart.lua
}

# What a call costs the host.
call() { "$at/gpu_call"; }

bench() {
    local more
    read -ra more <<< "${BENCH:-}"
    python3 tests/bench/gpu_bench.py --library "$at/libattn.so" --json "$out/gpu_bench.json" \
        ${QUICK:+--quick} "${more[@]}"
}

[ $# -gt 0 ] || set -- probe pointers device check lua call bench
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
