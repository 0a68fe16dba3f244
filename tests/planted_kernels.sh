#!/usr/bin/env bash
# planted_kernels.sh: plants one fault after the other in a copy of hip_kernels/ and demands that
# the suite on emulated chips sees it: by a sentence of the emulator or by a wrong result.
#
# Usage: tests/planted_kernels.sh [NAME...]      only the faults of these names
# CC names the compiler of kernels, DEVICES the emulated chips of faults that all chips share. Each
# fault is a sed script for one file of hip_kernels/; the script must change it. tests/planted.sh is
# the same for the library.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck source=tests/planted_common.sh
. tests/planted_common.sh
devices=${DEVICES:-emu:sm_80 emu:gfx942}
export ATTN_CACHE=$work/cache

# A tree that tools/gen_kernels.lua can work in, and the files as they were when this began.
mkdir -p "$work/tree/lib/emu"
cp -r hip_kernels tools "$work/tree"
cp -r hip_kernels "$work/right_kernels"
cp -r lib/emu/isa "$work/tree/lib/emu"

# suite PROGRAM: with the kernels of the tree; the object comes before the library's own.
suite() {
    (cd "$work/tree" && "${LUAJIT:-luajit}" tools/gen_kernels.lua) || return
    "$cc" "${flags[@]}" -c "$work/tree/lib/kernel_text.c" -o "$work/kernels.o" &&
        "$cc" -o "$1" "$work"/o/*.o "$work/kernels.o" "$work/libattn.a" -lm -lpthread -ldl
}

# What the suite draws at random would see the same, later. Faults name cases by their number: a new
# one comes last.
# shellcheck disable=SC2034
cases=(
    'dtype=f16 H=2 NQ=100 NK=200 D=64 seed=1'
    'dtype=bf16 H=4 HK=2 NQ=70 NK=300 D=128 seed=2 variant="@causal"'
    'NQ=33 NK=127 D=32 DV=64 seed=3 mul=4 sink=1'
    'dtype=f16 H=2 NQ=40 NK=90 D=24 seed=4 dropout=0.3 dseed=7 lk=odd lo=odd'
    'dtype=bf16 B=3 H=2 D=40 seed=5 packed=both qlens=5,70,0 klens=9,130,64 spare=20 ends=nan'
    'dtype=f16 B=2 H=8 HK=2 NQ=1 NK=700 D=64 seed=6 variant="q - k < 300 ? s + 0.1 * k : -inf"'
    'dtype=f16 NQ=64 NK=256 D=64 seed=7 variant="k < 100" plant=nan where=v check=isolate'
    'dtype=f16 H=2 NQ=20 NK=300 D=64 seed=8 mul=30 shift=-3'
    'dtype=f16 NQ=64 NK=200 D=64 seed=9 plant=inf where=k'
    'dtype=f16 H=2 NQ=200 NK=200 D=32 seed=10 bm=32 bn=32 dense=40'
    'dtype=f16 NQ=32 NK=6000 D=32 seed=11 inv=1 variant="k < 1 ? 10 : 0.1 * s"' # p below 2^-14
    'dtype=f16 NQ=40 NK=90 D=64 seed=12 variant="@softcap 50 ~ @alibi 1"'
    'dtype=f16 NQ=40 NK=90 D=64 seed=13 mul=30 variant="@softcap 50"'
    'dtype=f16 H=2 NQ=65 NK=600 D=64 vs=block vmul=1000 seed=3 inv=1'
    'dtype=f16 NQ=2 NK=8300 D=8 inv=1 seed=11' # more key blocks than lanes
    'dtype=f16 NQ=2 NK=9000 D=8 inv=1 variant="1500 < k && k < 6000"' # some of them unseen
    'dtype=f16 H=2 NQ=3 NK=5 D=8 lk=huge'
    'dtype=f16 NQ=16 NK=200 D=32 variant="k < 127"' # the last key of a block alone is masked
    'dtype=f16 NQ=16 NK=200 D=32 variant="k < 95"'  # where a block has 96
    'NQ=3 NK=300 D=32 seed=8 mul=30' # a maximum moves in one row of a lane alone
    'dtype=f16 H=8 HK=2 NQ=1 NK=700 D=32 seed=16 sink=1 variant="k < 64 * (h + 1)"'
    'dtype=bf16 NQ=40 NK=700 D=64 seed=14 scale=4' # maxima that follow late
)

# Of backward, for faults that forward does not have.
# shellcheck disable=SC2034
backward=(
    'dir=bwd dtype=bf16 H=4 HK=2 NQ=70 NK=150 D=64 seed=2 variant="@causal"'
    'dir=bwd H=2 NQ=40 NK=90 D=24 seed=4 dropout=0.3 dseed=7 k0=5 tk=99 sink=1 dlse=1'
    'dir=bwd dtype=f16 B=3 D=40 DV=24 packed=both qlens=5,170,60 klens=9,90,64 variant="@softcap 5"'
    'dir=bwd dtype=f16 NQ=70 NK=70 D=32 seed=3 variant="@causal" plant=nan where=q'
    'dir=bwd dtype=f16 NQ=70 NK=70 D=32 seed=3 variant="@causal" plant=nan where=k'
    'dir=bwd dtype=f16 H=4 HK=2 NQ=70 NK=90 D=32 variant="s * t[h]" caps="t:f32:4:normal"'
    'dir=bwd dtype=f16 NQ=70 NK=70 D=32 variant="s * t[h]" caps="t:f32:1:normal" plant=nan where=k'
    'dir=bwd dtype=bf16 H=4 HK=2 NQ=150 NK=150 D=64 seed=2 variant="@causal" det=1'
    'dir=bwd H=2 NQ=9 NK=17 D=8 variant="s + t[i][k] * c" caps="t:f32:9x17:normal c=3"'
    'dir=bwd dtype=bf16 NQ=90 NK=290 D=128 seed=5 variant="k <= q && q - k < 100" det=1'
    'dir=bwd dtype=f16 NQ=70 NK=100 D=256 seed=6 variant="@causal"'
    'dir=bwd det=1 dtype=f16 H=3 NQ=8192 NK=260 D=16 variant="q % 999 < 9 && q / 999 != k / 128"'
)

# Of the producer schedule: several items a block, all ways to load, more blocks than stages.
# shellcheck disable=SC2034
producer=(
    'dtype=f16 H=3 NQ=200 NK=700 D=64 seed=1'
    'dtype=bf16 H=2 NQ=150 NK=500 D=128 seed=2 variant="@causal"'
    'dtype=f16 H=2 NQ=140 NK=600 D=24 seed=4 lk=odd lo=odd'
    'dtype=bf16 B=3 H=2 D=40 seed=5 packed=both qlens=5,70,0 klens=9,330,64 spare=20 ends=nan'
    'dtype=f16 B=3 H=6 HK=3 NQ=300 NK=300 D=64 variant="@causal"' # a counter, sections of heads
    'dtype=bf16 H=2 NQ=140 NK=900 D=64 seed=14 scale=4' # maxima that follow late
    'dtype=bf16 NQ=200 NK=300 D=128 seed=15 scale=2 variant="@alibi 1"' # both sides of q
    'dtype=bf16 NQ=40 NK=200 D=64 seed=16 variant="@causal ~ @softcap 2"'
    'dtype=bf16 H=2 NQ=300 NK=700 D=64 inv=1 variant="k <= q && q - k < 300"' # a group's own keys
    'dtype=bf16 H=8 NQ=400 NK=400 D=128 variant="k <= q - 100"' # groups that see nothing
    'dtype=bf16 H=2 NQ=200 NK=200 D=64 variant="@causal ~ @document" caps="ids:i32:1x200:docs"'
    'dtype=bf16 NQ=250 NK=6000 D=64 inv=1 variant="q < 5814 ? k > 5000 : k < 9 || k > q + 30"'
    'dtype=bf16 NQ=200 NK=300 D=128 seed=15 scale=0.1 variant="@alibi 1"' # no moves
    'dtype=f16 NQ=64 NK=256 D=64 seed=7 variant="k < 100" plant=nan where=v check=isolate'
    'dtype=bf16 B=2 NQ=80 NK=100 D=64 qused=50,70' # rows that stay 0
)
set=cases # the list that is judged by

suite "$work/right" || exit 2
declare -A sound # of a device and a case: it passes where there is no fault
demand_right() { # demand_right DEVICE CASE
    [ -z "${sound[$1 $2]:-}" ] || return 0
    attempt "$work/right" --device "$1" --case "$2"
    if [ "$ended" != passed ]; then
        echo "without a fault $1 fails: $seen"
        tail -n 5 "$work/out"
        exit 1
    fi
    sound[$1 $2]=1
}

# judge NAME DEVICE FIRST: caught if a case sees the fault, case FIRST or another.
judge() {
    local -n list=$set
    local n what
    for n in "$3" $(seq "${#list[@]}"); do
        attempt "$work/faulty" --device "$2" --case "${list[n - 1]}"
        [ "$ended" != passed ] || continue
        what=$seen
        [ "$n" = "$3" ] || what="by case $n, not $3: $what"
        if [ "$ended" = hangs ] || grep -q 'could not compile' "$work/out"; then
            miss "$1 on $2" "$what"
            return
        fi
        demand_right "$2" "${list[n - 1]}"
        catch "$1 on $2" "$what"
        return
    done
    miss "$1 on $2"
}

plant() { # plant NAME[@FIRST] FILE SCRIPT [DEVICE...]: case FIRST of the list is tried first
    local name=${1%@*} first=${1##*@} right=$work/right_kernels/$2 file=$work/tree/hip_kernels/$2
    local script=$3 device
    [ "$first" != "$1" ] || first=1
    shift 3
    wanted "$name" && alter "$name" "$script" "$right" "$file" || return
    suite "$work/faulty" || exit 2
    cp "$right" "$file"
    # shellcheck disable=SC2048
    for device in ${*:-$devices}; do
        judge "$name" "$device" "$first"
    done
}

# Of the schedule.
plant barrier-a sched/multistage.h 's/ring_sync(); \/\* A \*\///'
plant barrier-b sched/multistage.h 's/ring_sync(); \/\* B \*\///'
plant wait-too-few sched/multistage.h 's/FLYING = 2 \* ATTN_STAGES - 2/FLYING = 2 * ATTN_STAGES/' \
    emu:sm_80
plant v-of-next-stage@3 sched/multistage.h 's/&pp, RING_V, stage)/\&pp, RING_V, before)/' \
    emu:sm_80
plant k-of-wrong-stage@3 sched/multistage.h \
    's/ring_load(&hold_k, RING_K, stage,/ring_load(\&hold_k, RING_K, before,/' emu:sm_80
plant k-block-twice sched/multistage.h \
    's/block_row(block\[STAGES\], &next)/block_row(block[0], \&next)/'
plant sums-of-a-step-lost@2 sched/multistage.h 's/^        soft_park(t);//' emu:sm_80
plant item-untold attn_fwd.hip 's/item_put(&w);//' emu:sm_80
plant v-where-k-is@2 sched/multistage.h 's/what == RING_V ? 8 : 0/0/' emu:sm_80
plant mask-of-first-block-only core/weights.h \
    's/raw, check, s);/raw, k0 == 0, s);/'
plant dropout-of-other-keys@4 core/weights.h \
    's/dropout_seed(p), k0, s)/dropout_seed(p), k0 + 2, s)/'

# Of softmax and what is around it.
plant dropped-rescale@8 core/softmax.h \
    's/o->x\[r\]\[c\] \*= f->by\[r\]/o->x[r][c] *= f->by[r] > 0 ? 1 : 0/'
plant sum-not-rescaled@6 core/softmax.h 's/t->l\[r\] \*= f->by\[r\];//'
plant near-unasked@13 core/score.h \
    's/near &= (part\[0\].*/near \&= scale * scale <= reach * reach;/'
plant near-distance@12 core/score.h \
    's/from_first + (float)(down - right)/from_first + (float)(down + right)/'
plant vote-of-one-row@20 core/softmax.h 's/moved |= move;/moved = move;/' emu:sm_80
plant trouble-overlooked@7 core/epilogue.h \
    's/wild |= (u32)(w->row0/wild |= (u32)(w->row0 > 0 \&\& w->row0/'
plant last-column-lost@2 core/epilogue.h \
    's/if (tile_out(c) < cols) {/if (tile_out(c) + 1 < cols) {/'
plant last-row-lost core/epilogue.h 's/< w->rows \&\& !(wild/< w->rows - 1 \&\& !(wild/'
plant range-cut core/range.h 's/(w->k_end + ATTN_BN - 1) \/ ATTN_BN/w->k_end \/ ATTN_BN/'
plant full-past-the-end@3 core/range.h 's/past <= w->k_end ? 2 : 1/past <= w->k_end + 1 ? 2 : 1/'
plant second-ballot core/range.h 's/warp_ballot(class_ == 2)/warp_ballot(class_ >= 1)/'
plant heads-swapped@2 core/work.h \
    's/: (i32)quotient(head, p->group, p->per_group);/: head % p->HK;/'
plant philox-round@4 core/dropout.h 's/round < 7/round < 6/'
plant unit-not-moved@14 core/softmax.h 's/f->moved |= unit != .*//'
plant first-v-scale@14 core/score.h 's/p->v_scale_group, k);/p->v_scale_group, 0);/'
plant range-of-half-a-warp@15 core/range.h 's/it->base += TILE_LANES/it->base += 32/' emu:gfx942
plant range-of-two-warps@11 core/range.h 's/it->base += TILE_LANES/it->base += 2 * TILE_LANES/'
plant range-too-narrow@16 core/range.h 's/first_bit(seen) + 1 : 0/first_bit(seen) : 0/' emu:gfx942
plant offset-of-32-bits@17 core/work.h 's/t->data + (u64)(b/t->data + (u32)(b/'
plant class-without-last-key@19 core/range.h \
    's/box.k1 = (i32)p->k0 + k1;/box.k1 = (i32)p->k0 + k1 - 1;/'
plant class-of-one-head@21 core/range.h 's/w->h + p->pack - 1/w->h/'
plant sink-of-head-0@21 attn_combine.hip 's/sink_of(p, h)/sink_of(p, 0)/'

# Of a chip's fragments. Rows past the end that are not zeroed are masked, and NaN in them is
# what the careful loop undoes: no result shows them, and they are no fault here.
plant lane-swapped arch/sm.h 's/lane_id() % 4 \* 2;/(lane_id() % 4 ^ 1) * 2;/' emu:sm_80
plant row-swapped arch/sm.h 's/TILE_DOWN(r) + lane_id() \/ 4/TILE_DOWN(r ^ 1) + lane_id() \/ 4/' \
    emu:sm_80
plant row-max-of-two-lanes arch/sm.h 's/return max_nan(x, lane_xor(x, 2))/return x/' emu:sm_80
plant no-commit arch/sm80.h 's/^    cp_async_commit();//' emu:sm_80
plant no-wait@3 arch/sm80.h 's/case 2: cp_async_wait(2)/case 2: cp_async_wait(6)/' emu:sm_80
plant chunk-past-the-row@5 arch/sm.h 's/n < 0 ? 0 : n > CHUNK/n < -CHUNK ? 0 : n > -1000/' emu:sm_80
plant swizzle-of-readers arch/sm80.h 's/chunks % 8 == 0 ? 8 : 4/4/' emu:sm_80
plant stage-size arch/sm80.h \
    's/STAGE_K = ATTN_BN \* CHUNKS_K \* 16/STAGE_K = ATTN_BN * CHUNKS_K * 8/' \
    emu:sm_80
plant not-transposed arch/sm80_16.h 's/ldmatrix_x4_trans(b/ldmatrix_x4(b/' emu:sm_80
plant halves-swapped arch/sm80_16.h 's/PACK_TWO(x\[0\], x\[1\])/PACK_TWO(x[1], x[0])/' emu:sm_80
plant third-product-lost@3 arch/sm80_f32.h 's/mma_16x8x8_tf32(.*a->low, h0, h1);//' emu:sm_80
plant low-rounded@3 arch/sm80_f32.h 's/return bits_of(x - float_of(high_of(x)))/return 0/' emu:sm_80
plant row-sum-of-one-lane arch/gfx9.h 's/return x + lane_xor(x, 32)/return x/' emu:gfx942
plant swizzle-of-readers-gfx9 arch/gfx9.h 's/chunks % 8 == 0 ? 4 : 2, row/2, row/' emu:gfx942
plant subnormals-flushed@11 arch/gfx90a.h 's/TILE_P_SCALE .*/TILE_P_SCALE 1.0f/' emu:gfx90a

# Of backward.
set=backward
plant back-barrier sched/backward.h 's/ring_sync(); \/\* A \*\///'
plant back-barrier-b sched/backward.h 's/ring_sync(); \/\* B \*\///' emu:gfx942
plant back-place sched/backward.h \
    's/next = AHEAD % STAGES/next = 0/; s/(stage + AHEAD) % STAGES/stage/' emu:sm_80
plant back-one-head sched/backward.h 's/block_number(told) \/ steps/0/'
plant back-steps-of-heads@8 core/range.h 's/i0 = n % steps \* ATTN_BN/i0 = n \/ steps * ATTN_BN/'
plant back-no-delta core/grad.h 's/ - stats->c)/)/'
plant back-no-derivative@3 core/grad.h 's/t.g \*= by_s;//'
plant back-dropped-counts@2 core/grad.h 's/there && t.w != 0 ? t.p \* t.w : 0/there ? t.p : 0/'
plant back-dropout-shard@2 core/dropout.h 's/kept >> e & 1 ? \*x/kept >> (e ^ 1) \& 1 ? *x/'
plant back-other-draw@2 core/dropout.h \
    's/(u32)dropout_keeps(p, &draw, k) << r/(u32)dropout_keeps(p, \&draw, k + 1) << r/'
plant back-row-of-sequence@3 core/grad.h 's/ h, w->seq.q_row + i)/ h, i)/'
plant back-dlse-added@2 attn_bwd_rows.hip 's/c -= t->dlse/c += t->dlse/'
plant back-nan-overlooked@4 core/grad_out.h 's/not_finite != 0.0f) << r/not_finite > 1e9f) << r/'
plant back-nan-spreads@4 core/careful_grad.h 's/if (!g.seen || /if (/'
plant back-rows-turned arch/gfx9_ring.h \
    's/chunk_at(quad \* 4 + e, col/chunk_at(quad * 4 + (e ^ 1), col/' emu:gfx942
plant back-even-sum@6 core/grad.h 's/t->sum\[i\] = warp_sum(t->sum\[i\]);//'
plant back-left@7 core/grad.h 's/~(grad_pairs)0 >>/(grad_pairs)0 >>/'
plant back-exponent@6 core/exact.h 's/ << from % 8;/ << from % 4;/'
plant fused-barrier sched/backward.h 's/ring_sync(); \/\* C \*\///' emu:sm_80 emu:sm_90a
plant fused-sums-of-heads@6 sched/backward.h 's/now.h != w->h/0/' emu:sm_80
plant fused-not-cleared attn_bwd_rows.hip 's/zero = {{0,/zero = {{1065353216,/' emu:sm_80
plant fused-sequence@3 core/dq.h 's/w->seq.q_row \/ ATTN_BN + n/n/' emu:sm_80
plant fused-other-columns arch/sm80_16.h 's/const int n = pass \* DQ_N + c \/ 4/&+ 1/' emu:sm_80
plant fused-nan-overlooked@5 attn_bwd_dq.hip 's/zero != 0.0f/zero > 1e9f/' emu:sm_80
plant fused-asked-apart@4 attn_bwd_dq.hip 's/mark_at(warp, dq_row/mark_at(warp_id(), dq_row/' \
    emu:sm_80 emu:sm_90a
plant order-not-passed@8 core/order.h 's/ATTN_BM + 1));/ATTN_BM));/' emu:sm_80 emu:sm_90a
plant order-down@12 core/range.h 's/it->base < 0 ? -ATTN_BM : ATTN_BM/ATTN_BM/' emu:sm_90a
plant order-of-all@10 core/order.h 's/if (is_before) {/if (own > 0) {/' emu:sm_90a
plant groups-proxy arch/sm80.h 's/^    proxy_fence();//' emu:sm_90a
plant groups-fence arch/sm90_grad.h 's/wgmma_fence();//' emu:sm_90a
plant groups-wait sched/backward.h 's/tile_wait(1);/;/' emu:sm_90a
plant groups-columns@10 arch/sm90_grad.h 's/first \/ 64 \* ATTN_BM \* 128/0/' emu:sm_90a
plant groups-rows arch/sm90_grad.h 's/i % 2 \* 8 \* 128/i % 2 * 4 * 128/' emu:sm_90a
plant groups-step arch/sm90_grad.h 's/(k) \* 2048/(k) * 1024/' emu:sm_90a
plant groups-out@11 arch/sm.h \
    's/ATTN_DV \/ 16 \/ ATTN_SPLIT/ATTN_DV \/ 32 \/ ATTN_SPLIT/' emu:sm_90a

# Of the producer schedule.
set=producer
prod() { # prod NAME FILE SCRIPT
    plant "prod-$1" "$2" "$3" emu:sm_90a
}
prod full-wait arch/sm90.h 's/mbarrier_wait(SHARED_FULL + .*, t->parity);/(void)t;/'
prod free-wait arch/sm90.h 's/mbarrier_wait(SHARED_FREE + .*, t->parity ^ 1);/(void)t;/'
prod free-parity arch/sm90.h 's/t->parity ^ 1);/t->parity);/'
prod parity-stays arch/sm90.h 's/t->parity ^= 1;//'
prod parity-of-loads arch/sm90.h 's/n \/ stages & 1}/n \& 1}/'
prod count-free arch/sm90.h \
    's/(SHARED_FREE + 8 \* n), ATTN_WARPS)/(SHARED_FREE + 8 * n), ATTN_WARPS - 1)/'
prod count-full arch/sm90.h \
    's/(SHARED_FULL + 8 \* n), loaders)/(SHARED_FULL + 8 * n), loaders + 1)/'
prod no-init-fence arch/sm90.h 's/mbarrier_init_fence();//'
prod bytes@2 arch/sm90.h \
    's/mbarrier_expect(barrier, groups \* bytes)/mbarrier_expect(barrier, bytes)/'
prod box-place@2 arch/sm90.h 's/to + (u32)(g \* bytes), map/to, map/'
prod box-columns@2 arch/sm90.h 's/barrier, g \* 64, at->head/barrier, 0, at->head/'
prod chunk-moved@3 arch/sm90.h 's/(c ^ r) % 8 \* 16/c % 8 * 16/'
prod stride arch/sm90.h 's/stage_at(RING_K, stage_k), 0, 1024)/stage_at(RING_K, stage_k), 0, 512)/'
prod leading@2 arch/sm90.h 's/ATTN_BN \* 128, 1024)/ATTN_BN * 64, 1024)/'
prod step-of-k arch/sm90.h 's/d % 4 \* 32) \/ 16), d > 0)/d % 2 * 32) \/ 16), d > 0)/'
prod stage-of-k arch/sm90.h 's/stage_at(RING_K, stage_k), 0/stage_at(RING_K, stage_q), 0/'
prod rows-of-group arch/sm90.h 's/(u32)(group \* 64 \* 128)/(u32)(group * 32 * 128)/'
prod sum-goes-on arch/sm90.h 's/, d > 0);/, 1);/'
prod product-fence arch/sm90.h 's/wgmma_fence();//'
prod product-commit arch/sm90.h 's/wgmma_commit();//'
prod registers@2 arch/sm90.h 's/regs_less(56)/regs_less(64)/'
prod free-by-lanes arch/sm90.h \
    '/This warp has read the place/,/^}/s/if (lane_id() == 0)/if (lane_id() <= 1)/'
prod message-of-item arch/sm90.h 's/ITEMS = 8,/ITEMS = 1,/'
prod proxy-fence@3 sched/producer.h 's/proxy_fence();//'
prod wait-for-s sched/producer.h 's/tile_wait(1);//'
prod wait-for-o sched/producer.h 's/tile_wait(0);//'
prod p-early sched/producer.h \
    's/tile_wait(1);/tile_wait(1); tile_p_of(\&pp, \&s);/'
prod fade-early@6 sched/producer.h \
    's/^\( *\)told = block_told/\1softmax_fade(o, \&fade); told = block_told/'
prod free-early sched/producer.h 's/tile_wait(1);/ring_free(RING_V, \&at->v); tile_wait(1);/'
prod late-p@6 core/softmax.h 's/s->x\[r\]\[c\] \*= by;//'
prod late-m@4 core/softmax.h \
    's/m : m + (float)above/m : m + (float)above + 1/;s/exp2_fast(m - t->m\[r\])/exp2_fast(-above)/'
prod fall-side@7 core/fall.h 's/d + TILE_DOWN(r) < right/d + TILE_DOWN(r) > right/'
prod fall-addends@7 core/fall.h 's/other |= t->m\[r\] != fall_first(p, held, r);//'
prod fall-below@13 core/fall.h 's/k0 <= held->below/1/'
prod range-down@7 sched/ahead.h 's/AHEAD_DOWN ? -n/AHEAD_DOWN ? 1 - n/'
prod cap-sizes@8 core/cap.h 's/if (!warp_any(!(size <= a.limit)))/if (1)/'
prod mask-column-more@2 arch/sm.h 's/right \& 7 ? 2 : 1/2/'
prod counter@5 sched/ahead.h 's/return grid + atomic/return grid + 1 + atomic/'
prod section@5 core/work.h 's/first = section \* p->near/first = section/'
prod last-full@2 core/work.h 's/w->row0 -= WORK_ROWS - over;/w->row0 -= WORK_ROWS;/'
prod first-short@2 core/work.h 's/w->rows = over;/w->rows = over - 1;/'
prod column-of-lanes@11 arch/sm.h 's/c \/ TILE_OWN \* 4/c \/ TILE_OWN/'
prod column-own@11 arch/sm.h 's/lane_id() \/ 4 \* TILE_OWN + n/lane_id() \/ 4 * TILE_OWN + (n ^ 1)/'
prod part-free sched/ahead.h 's/mbarrier_wait(SHARED_TOLD + 8, .*);/(void)part;/'
prod part-parity sched/ahead.h \
    's/mbarrier_wait(SHARED_TOLD, part \& 1)/mbarrier_wait(SHARED_TOLD, 0)/'
prod part-of-middle@12 sched/ahead.h 's/return some & low & high;/return seen;/'
prod part-of-group@5 sched/ahead.h 's/part_at(part, PART_SEEN + group)/part_at(part, PART_SEEN)/'
prod full-of-group@9 sched/ahead.h 's/part_at(part, PART_FULL + group)/part_at(part, PART_FULL)/'
prod block-of-group@5 arch/sm90.h 's/(t->stage \* GROUPS + group)/(t->stage * GROUPS)/'
prod baton@10 sched/producer.h \
    '/^DEV void producer_unseen/,/^}/s/baton_pass(group, &at->q);/;/'
prod store-fence arch/sm90.h 's/proxy_fence();//'
prod store-read sched/producer.h 's/store_wait_read();//'
prod store-meet sched/producer.h 's/named_sync(1 + group, 128);//'
prod store-rows@15 core/epilogue.h 's/int odd = w->row0 .*/int odd = 0;/'
prod store-finite@14 core/epilogue.h \
    's/(tile_put(o, factor, stage) != 0)/(0 \& tile_put(o, factor, stage))/'
prod store-columns@2 arch/sm90.h 's/g \* 64, at->head,$/0, at->head,/'
prod v-of-next sched/producer.h 's/load_v(l, p, block, 2)/load_v(l, p, next, 2)/'

finish
