# planted_common.sh: what planted.sh and planted_kernels.sh share. Both source it, from the
# repository's root; it builds the library and the suite's objects, and counts what becomes of
# faults. A fault is caught by a case that fails, or by a crash. A suite that does not end has not
# said what is wrong: that fault is missed. (An emulated chip names the lanes that wait for ever.)
# shellcheck shell=bash
only=" $* "
cc=${CC:-cc}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/o"
flags=(-std=c11 -O1 -D_POSIX_C_SOURCE=200809L -Ilib)

tools/build.sh >"$work/log" 2>&1 || { cat "$work/log"; exit 2; }
cp build/libattn.a "$work"
for file in tests/plain*.c tests/conformance/*.c; do
    "$cc" "${flags[@]}" -c "$file" -o "$work/o/$(echo "$file" | tr / _).o" || exit 2
done

limit=120 # seconds, of one run of the suite
caught=0
missed=0
catch() { # catch NAME HOW
    echo "caught $1: $2"
    caught=$((caught + 1))
}
miss() { # miss NAME [WHY]
    echo "MISSED $1${2:+: $2}"
    missed=$((missed + 1))
}
finish() { # the script's status: nothing was missed
    echo "$caught passed, $missed failed"
    [ "$missed" -eq 0 ]
}

wanted() { # wanted NAME: the command line asks for it, or for all
    case "$only" in
    "  " | *" $1 "*) ;;
    *) return 1 ;;
    esac
}

alter() { # alter NAME SCRIPT RIGHT FILE: FILE becomes RIGHT with the fault
    sed "$2" "$3" >"$4"
    if cmp -s "$3" "$4"; then
        miss "$1" "the script no longer finds its place in $3"
        return 1
    fi
}

# attempt PROGRAM [OPTION...]: runs the suite; what it says is in $work/out, and how it ended in
# $ended: passed, failed or hangs; in $seen, what it saw.
# shellcheck disable=SC2034 # both scripts read them
attempt() {
    local status
    { timeout "$limit" "$@" >"$work/out" 2>&1; } 2>>"$work/log"
    status=$?
    seen=$(grep -m 1 FAILED "$work/out" | cut -c 1-200)
    case $status in
    0) ended=passed ;;
    124) ended=hangs seen="no end after $limit s" ;;
    *) ended=failed seen=${seen:-a crash, status $status} ;;
    esac
}
