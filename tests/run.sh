#!/usr/bin/env bash
# run.sh: runs every test and closes with "N passed, N failed".
#
#   tests/run.sh              installs what is missing, unless ATTN_NO_SETUP=1; LUAJIT names
#                             an interpreter, MODEL the sentence encoder's folder
#
#   bazel test //...                  everything with an optimised library
#   bazel test --config=asan //...    the same under AddressSanitizer and UndefinedBehaviorSanitizer
#   tests/house.sh                    compilers, exported names, installation, Lua, generated files
#   tests/planted.sh                  faults planted in the library, which the suite must see
#   tests/planted_kernels.sh          the same of the kernels, on emulated chips
#   tools/lint.sh                     the house's rules, linters
#   examples/*                        each runs without arguments
#
# What each program printed stands in build/logs/. tests/count.awk counts it.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh

passed=0
failed=0
skipped=0
programs=()
mkdir -p build/logs
rm -f build/logs/*

# count NAME STATUS LOG [SECONDS]: adds a program's tests to the sums, and prints its failures.
count() {
    local p='' f='' s=''
    read -r p f s < <(awk -v failed="$(($2 != 0))" -f tests/count.awk "$3")
    [ -n "$s" ] || p=0 f=1 s=0 # no log
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
    printf '%-44s %6d passed %4d failed' "$1" "$p" "$f"
    [ "$s" = 0 ] || printf ' %4d skipped' "$s"
    [ "${4:-0}" -lt 20 ] || printf ' %4d s' "$4"
    [ "$2" = 0 ] || printf '   (status %s, %s)' "$2" "$3"
    echo
    if [ "$f" != 0 ]; then
        grep -av '^caught ' "$3" | grep -aE -A 4 '^not ok|^MISSED|FAIL|[Ee]rror:|ERROR:' |
            head -n 60 | sed 's/^/    /'
    fi
    grep -aE '^skipped: |# skip' "$3" | sed 's/^/    /'
}

# program NAME COMMAND...: begins it, half an hour at most, as soon as a core is free; finish: waits
# for all of them and counts, in the order in which they began.
program() {
    local name=$1 log=build/logs/${1//[\/ ]/-}
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
        wait -n
    done
    local start=$SECONDS
    shift
    {
        timeout 1800 "$@" > "$log.log" 2>&1 < /dev/null
        echo "$? $((SECONDS - start))" > "$log.status"
    } &
    programs+=("$name")
}
finish() {
    local name log status seconds
    wait
    for name in "${programs[@]}"; do
        log=build/logs/${name//[\/ ]/-}
        read -r status seconds < "$log.status"
        count "$name" "$status" "$log.log" "$seconds"
    done
}

# bazel_test NAME OPTION...: every test target of the tree.
bazel_test() {
    local name=$1 all=build/logs/$1.log built=0 before=$failed start=$SECONDS
    local status target result log
    shift
    bazel test --config=ci --keep_going "${environment[@]}" "$@" < /dev/null > "$all" 2>&1
    status=$?
    while read -r target result; do
        log=build/logs/$name${target//[\/:]/-}.log
        case $result in
        *'TO BUILD'*) continue ;;
        *) cp ".bazel/testlogs/$(echo "${target#//}" | tr : /)/test.log" "$log" ;;
        esac
        built=$((built + 1))
        case $result in
        PASSED* | '(cached) PASSED'*) count "$name $target" 0 "$log" ;;
        *) count "$name $target" 1 "$log" ;;
        esac
    done < <(grep -aE '^//[^ ]+ +(\(cached\) )?[A-Z]' "$all")
    # What did not build is one failure, with the compiler's words.
    if [ "$built" = 0 ] || { [ "$status" != 0 ] && [ "$failed" = "$before" ]; } ||
        grep -aq 'TO BUILD' "$all"; then
        count "$name build" 1 "$all"
    fi
    echo "$name: $((SECONDS - start)) s"
}

setup bazel=bazel-bootstrap g++=g++ /usr/include/catch2=catch2 "${LUAJIT:-luajit}=luajit" \
    git=git || exit 1
# Without these their tests are skipped.
setup pkg-config=pkg-config clang=clang lua5.1=lua5.1 luarocks=luarocks luacheck=lua-check \
    cppcheck=cppcheck || true
setup_model || unset MODEL
environment=()
[ -z "${LUAJIT:-}" ] || environment+=("--repo_env=LUAJIT=$(command -v "$LUAJIT")")
[ -z "${MODEL:-}" ] || environment+=("--test_env=MODEL=$MODEL")
echo "set-up: $SECONDS s"

bazel_test bazel //...
bazel_test asan --config=asan --test_tag_filters=-no_asan //...
tools/build.sh > build/logs/build.log 2>&1
# Of these each takes one core; the longest come first.
program planted-kernels env DEVICES=emu:sm_80 tests/planted_kernels.sh
program planted tests/planted.sh
program house tests/house.sh
program lint tools/lint.sh
program kernels "${LUAJIT:-luajit}" tools/kernels.lua
program quickstart examples/quickstart.sh
for example in examples/*.lua; do
    program "$example" env "LUA_PATH=lua/?.lua;;" "${LUAJIT:-luajit}" "$example"
done
finish

echo "logs: build/logs, time: $SECONDS s"
line="$passed passed, $failed failed"
[ "$skipped" = 0 ] || line="$line, $skipped skipped"
echo "$line"
[ "$failed" = 0 ]
