# count.awk: reads one test program's output and prints "PASSED FAILED SKIPPED".
#
# Who calls it: tests/run.sh, with -v failed=1 where the program's exit status was not 0. The first of
# these that the output has is believed:
#
#   N passed, N failed[, N skipped]      the conformance suite, other programs of ours (summed)
#   Catch2's closing line                test cases
#   ok / not ok lines                    TAP; "ok 3 # skip why" is skipped
#   skipped: why                         the whole program was skipped
#   nothing                              one test, the program itself
#
# A program that failed without saying so (a crash, a leak, a time-out) counts as one failure more,
# and so does one whose runner ran no test.

/^[0-9]+ passed, [0-9]+ failed/ {
    plain = 1
    p += $1
    f += $3
    s += $5
}
/^All tests passed \(/ {
    catch = 1
    cp += $(NF - 2)
}
/^test cases: / {
    catch = 1
    for (i = 2; i <= NF; i++) {
        cp += $i == "passed" ? $(i - 1) : 0
        cf += $i == "failed" ? $(i - 1) : 0
        cs += $i == "skipped" ? $(i - 1) : 0
    }
}
/^ok / {
    tap = 1
    if ($0 ~ /# *[Ss][Kk][Ii][Pp]/) {
        ts++
    } else {
        tp++
    }
}
/^not ok / {
    tap = 1
    tf++
}
/^skipped: / {
    left_out = 1
}
/^No tests ran/ {
    catch = 1
}
END {
    if (!plain && catch) {
        p = cp
        f = cf
        s = cs
    } else if (!plain && tap) {
        p = tp
        f = tf
        s = ts
    } else if (!plain) {
        p = !failed && !left_out
        s = !failed && left_out
    }
    if (plain && tf > f) {
        f = tf
    }
    if (!f && (failed || p + s == 0)) {
        f = 1
    }
    print p + 0, f + 0, s + 0
}
