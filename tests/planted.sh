#!/usr/bin/env bash
# planted.sh: plants one fault after the other in a copy of the library and demands that the
# conformance suite sees it. A suite that passes with a fault in the library proves nothing.
#
# Usage: tests/planted.sh [NAME...]      only the faults of these names
# CC names a compiler, PLANTED_SUITE the options of the suite. Each fault is a sed script for one
# file of lib/; the script must change it.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck source=tests/planted_common.sh
. tests/planted_common.sh
read -ra suite <<<"${PLANTED_SUITE:---list --random 300 --stop}"
mkdir -p "$work/lib"

link() { # link PROGRAM [OBJECT]: the object comes before the library's own
    "$cc" -o "$1" "$work"/o/*.o ${2:+"$2"} "$work/libattn.a" -lm -lpthread -ldl
}

link "$work/right" || exit 2
attempt "$work/right" "${suite[@]}"
if [ "$ended" != passed ]; then
    echo "without a fault the suite fails: $seen"
    tail -n 5 "$work/out"
    exit 1
fi

plant() { # plant NAME FILE SCRIPT
    wanted "$1" && alter "$1" "$3" "lib/$2" "$work/lib/$2" || return
    if ! "$cc" "${flags[@]}" -c "$work/lib/$2" -o "$work/fault.o" 2>"$work/log" ||
        ! link "$work/faulty" "$work/fault.o"; then
        miss "$1" 'does not compile'
        cat "$work/log"
        return
    fi
    attempt "$work/faulty" "${suite[@]}"
    case $ended in
    failed) catch "$1" "$seen" ;;
    *) miss "$1" "$seen" ;;
    esac
}

# Of the device under test.
plant mask-off-by-one cpu_score.c 's/t->seq.q0 + t->r0, t->rows);/t->seq.q0 + t->r0 + 1, t->rows);/'
plant limit-off-by-one cpu_limits.c 's/? rest + 1 :/? rest :/'
plant class-off-by-one cpu_bwd.c 's/LEAF_k, k, k + t->n - 1);/LEAF_k, k, k - 1);/'
plant dropped-rescale cpu_fwd.c 's/if (corr\[i\] != 1)/if (corr[i] > 1)/'
plant swapped-head cpu_score.c 's|t->hk = h / (p->H / p->HK)|t->hk = h % p->HK|'
plant group-cut-short cpu_bwd.c 's/h < (hk + 1) \* group/h < hk * group + (group + 1) \/ 2/'
plant dropout-off-by-one cpu_score.c \
    's/seq.k0 + t->c0, t->n, keep)/seq.k0 + t->c0 + 1, t->n, keep)/'
plant dropout-factor cpu_score.c 's/keep\[j\] ? p->drop_factor \*/keep[j] ? 1 */'
plant lse-without-sink cpu_split.c 's/top + log(sum)};/top + log(l * by)};/'
plant dlse-forgotten cpu_bwd.c 's/if (p->dlse.type)/if (p->dlse.type \&\& t->r0 > 1000000)/'
plant dsink-sign cpu_bwd.c 's/dsink -= attn/dsink += attn/'
plant delta-of-one-column cpu_bwd.c 's/d < p->DV; d++/d < p->DV - 1; d++/'
plant gradient-overwritten cpu_grad.c 's/sums\[at + dense\] +=/sums[at + dense] =/'
plant dense-gradient-sign cpu_grad.c 's/bound->grad\[placed\] +=/bound->grad[placed] -=/'
plant value-scale-forgotten cpu_score.c \
    's/t->has_value_scale = p->v_scale.type != 0/t->has_value_scale = 0/'
plant scale-block-per-tile cpu_score.c 's/p, t->b, t->h, c0 + j)/p, t->b, t->h, j)/'
plant lists-shifted cpu_score.c 's/index \* p->block_n - t->c0/index * p->block_n + 1 - t->c0/'
plant origin-of-heads cpu_score.c 's/(int32_t)(p->h0 + h)/(int32_t)h/'
plant nan-through-the-mask cpu_fwd.c 's/^        attn__find_wild(t, wild, pairs);$//'
plant nan-through-the-mask-backward cpu_bwd.c 's/^    attn__drop_wild(panels, size, pairs);$//'
plant last-rows-left-out cpu_fwd.c \
    's/r->h, r->r0 + i, &r->all/r->h, r->r0 + i - (i == BM - 1), \&r->all/'

# Of what the oracle shares, where the second opinion must see it.
plant derivative-sign expr_grad.c 's/sum(t, d\[0\], minus(t, d\[1\]))/sum(t, d[0], d[1])/'
plant derivative-of-cos expr_grad.c \
    's/RULE(cos) { return (void)y, minus(t, \(.*\)); }/RULE(cos) { return (void)y, \1; }/'
plant derivative-of-max expr_grad.c 's/op2(t, OP_le, a\[1\], a\[0\])/op2(t, OP_le, a[0], a[1])/'
plant derivative-of-quotient expr_grad.c \
    's/minus(t, over(t, times(t, d\[1\], y), a\[1\]))/over(t, times(t, d[1], y), a[1])/'
plant causal-off-by-one variants.c 's/"k <= q",$/"k < q",/'
plant window-off-by-one variants.c 's/"q - k <= l \&\& k - q <= r"/"q - k < l \&\& k - q <= r"/'
plant positions-off-by-one sequence.c 's/: s.nk_all - s.nq_all)/: s.nk_all - s.nq_all + 1)/'
plant dropout-counter dropout.c 's/word\[at % 8 \/ 2\]/word[(at + 1) % 8 \/ 2]/'
plant dropout-word dropout.c 's/\[at % 32 \/ 8\]/[at % 32 \/ 16]/'
plant used-length-ignored sequence.c 's/used ? used\[b \* u_st\] : s.n, 0/s.n, 0/'
plant rows-not-cleared sequence.c \
    's/clear_rows(p, is_q, b, end, T);/clear_rows(p, is_q, b, end, T - 1);/'
plant merge-without-sink merge.c 's/m->sink.type ? attn__get(.*) : -INFINITY/-INFINITY/'
plant wrong-shape-accepted problem.c 's/p->H % p->HK/p->H < p->HK/'
plant second-score-unchained expr_compose.c 's/part->score, s);/part->score, -1);/'
plant masks-not-joined expr_compose.c 's/attn__op(g, OP_and, \*mask, visible, -1)/visible/'
plant unmasked-by-a-part expr_compose.c 's/    if (!kept) {/    if (0) {/'
plant any-is-all expr_compose.c 's/OP_or, mask, visible/OP_and, mask, visible/'
plant capture-of-another-rank bind.c 's/(s->rank \&\& t->ndim != s->rank)/0/'
plant capture-twice bind.c 's/if (found\[symbol\]) {/if (0) {/'
plant capture-missing bind.c 's/if (!found\[i\]) {/if (0) {/'
plant parameter-cut bind.c 's/to->f = (float)number/to->f = (float)(int)number/'
plant capture-offset bind.c 's/(const char \*)t->data + t->byte_offset/(const char *)t->data/'
plant gradient-left-out bind.c 's/to->has_grad = 1/to->has_grad = 0/'

finish
