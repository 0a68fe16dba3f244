/* list.c: the fixed list: every public fault report that concerns attention itself, as a case.

   Who calls it: main.c. A case is named repo#n (PRn: a pull request) after its report, with a
   letter where it has several; shapes are re-derived, data is random. Where the original is too
   large for a processor in a minute, it keeps the property and the boundary it crosses and loses
   work: fewer heads, a smaller head dimension, or memory that is addressed but not touched (layout
   huge: rows 2^31 elements apart). The comment of such a case says what was scaled. Cases of paged
   caches and rotary embeddings concern what attn.h does not have; of those the part that concerns
   lengths, strides and offsets is here. */
#include "suite.h"

// clang-format off
const listed suite_list[] = {
    /* -- Empty, short and fully masked rows ---------------------------------------------------- */
    {"Dao#443", "dir=bwd dtype=f16 B=3 D=32 packed=both qlens=76,34,146 klens=1,1,1 "
                "variant=\"@causal\" seed=443"},
    /* 16 heads of 64: 3 of 16 here; 212 rows behind the last sequence stay, as 20. */
    {"Dao#752", "dir=bwd dtype=f16 B=2 H=3 D=16 packed=both qlens=137,349 klens=137,349 spare=20 "
                "ends=nan dropout=0.1 dseed=752 seed=752"},
    {"pytorch#176793", "dir=bwd dtype=bf16 B=3 H=2 D=16 packed=both qlens=144,288,512 "
                       "klens=144,288,512 spare=2 ends=nan variant=\"@causal\" seed=176793"},
    {"pytorchPR186786", "dir=bwd dtype=f16 B=3 H=2 D=16 packed=both qlens=14,28,52 klens=14,28,52 "
                        "spare=2 ends=inf longest=1 seed=186786"},
    {"DaoPR2421", "dir=bwd dtype=bf16 B=4 H=2 D=32 packed=both qlens=17,0,64,1 klens=17,40,64,129 "
                  "seed=2421"},
    {"DaoPR2470a", "dir=bwd B=2 H=2 NQ=9 NK=0 D=16 variant=\"@causal\" want=0 want_lse=-inf"},
    {"DaoPR2470b", "dir=bwd B=2 H=2 NQ=9 NK=0 D=16 want=0 want_lse=-inf"},
    {"DaoPR2470c", "dir=bwd B=3 H=2 D=16 packed=both qlens=5,6,7 klens=4,0,9 sink=1 seed=2470"},
    {"scores-past-2^127", "H=2 NQ=9 NK=300 D=16 variant=\"s + k * 1e36\" sink=1"},
    {"scores-past-minus-2^127", "NQ=40 NK=3 D=8 v=1,1,1 want=1 want_lse=-3.4e38 "
                                "variant=\"-3.4e38\""},
    {"scores-past-minus-2^127-16", "dtype=f16 NQ=40 NK=300 D=8 v=1 want=1 "
                                   "variant=\"-3e38 - k * 1e34\""},
    /* Values near f32's end: the sum before it is divided passes it, the mean does not. */
    {"scores-huge", "dir=bwd dtype=bf16 NQ=40 NK=130 D=64 scale=1e8"},
    {"scores-huge-256", "dir=bwd det=1 dtype=bf16 NQ=40 NK=130 D=256 scale=1e30"},
    {"values-near-2^128", "NQ=1 NK=3 D=1 v=3e38,3e38,3.1e38 seed=5"},
    {"values-near-2^128-long", "H=2 HK=1 NQ=70 NK=4500 D=24 sink=1 variant=\"@causal\" v=3e38 "
                               "seed=5"},
    {"values-near-2^128-16", "dtype=bf16 NQ=3 NK=300 D=40 dropout=0.25 v=3e38,-3e38,1,2e38 "
                             "seed=5"},
    {"dsink-infinite", "dir=bwd sink=1 H=2 NQ=200 NK=20 D=8 plant=inf where=dout seed=3"},
    /* p is below all numbers of f32, and what multiplies it is infinite. */
    {"dsink-infinite-far", "dir=bwd sink=1 H=2 NQ=200 NK=20 D=8 variant=\"s + 200\" plant=inf "
                           "where=dout seed=3"},
    {"dsink-infinite-farther", "dir=bwd sink=1 H=2 NQ=200 NK=20 D=8 variant=\"s + 900\" "
                               "plant=inf where=dout seed=3"},
    {"infinite-dout-far-keys", "dir=bwd HK=1 NQ=1025 NK=15 D=32 seed=606337 qused=1714 dlse=1 "
                               "variant=\"@alibi 10\" sink=1 grads=1 h0=1 i0=37 k0=1 tb=2 th=3 "
                               "tq=1081 tk=50 plant=inf where=dout"},
    /* What is captured takes 264 bytes of the workspace, in front of the rows of dO. */
    {"workspace-alignment", "dir=bwd otype=bf16 NQ=32 NK=30 D=32 variant=\"s * x0 + x0\" "
                            "caps=\"x0=0.597\""},
    {"DaoPR978", "B=2 H=2 NQ=8 NK=4 D=16 variant=\"@causal ~ @window 2 0 ~ k > q\" want=0 "
                 "want_lse=-inf"},
    {"flashinfer#4051a", "check=merge parts=3 H=2 NQ=9 NK=12 D=16 variant=\"false\" want=0 "
                         "want_lse=-inf"},
    {"flashinfer#4051b", "check=merge parts=4 H=2 NQ=40 NK=12 D=16 variant=\"@causal\" sink=1"},
    /* (32,12,441,64): 2 entries, 2 heads; the first 128 keys have the most negative number. */
    {"pytorch#109517a", "dir=bwd B=2 H=2 NQ=441 NK=441 D=16 variant=\"s + (k < 128 ? "
                        "-3.40282346e38 : 0)\" seed=109517"},
    {"pytorch#109517b", "dir=bwd B=2 H=2 NQ=41 NK=41 D=16 variant=\"@bias 1 0 0 1\" "
                        "caps=\"bias:f32:2x1x1x41:-3.4028234663852886e38\" seed=109517"},
    {"pytorch#101967a", "check=isolate dir=bwd det=1 H=2 NQ=33 NK=50 D=16 variant=\"k % 3 < 2\" "
                        "seed=7"},
    {"pytorch#101967b", "check=isolate dir=bwd det=1 H=2 NQ=33 NK=70 D=16 dtype=bf16 "
                        "variant=\"bool keep[1]; keep[k]\" caps=\"keep:bool:70:keep\" seed=8"},
    {"pytorch#101967c", "dir=bwd H=2 NQ=33 NK=50 D=16 variant=\"@causal\" plant=nan where=k "
                        "seed=9"},
    {"aiterPR1144a", "dir=bwd B=2 H=4 HK=2 NQ=1 NK=200 D=64 dtype=bf16 variant=\"@causal\" "
                     "seed=1144"},
    {"aiterPR1144b", "dir=bwd B=2 H=4 HK=2 NQ=1 NK=1 D=64 dtype=f16 seed=1145"},
    {"cudnn-frontend#1072", "dir=bwd B=2 H=3 NQ=1 NK=128 D=64 dtype=bf16 shift=-128 seed=1072"},
    /* dO finer than q becomes an operand of q's type: a key seen by one row has two roundings. */
    {"fine-dout", "dir=bwd dtype=bf16 otype=f32 NK=29 D=24 packed=k klens=29 spare=2 lk=swapped "
                  "lv=same_head lo=padded ldo=same_row lg=reversed variant=\"@causal\" vs=block "
                  "bm=64 bn=2 dense=94 shift=-120 seed=640213"},
    {"no-queries-in-turns", "dir=bwd dtype=f16 det=1 NQ=0 NK=300 D=108 seed=613344"},
    {"fine-dout-f16", "dir=bwd dtype=f16 otype=f32 H=2 NQ=90 NK=60 D=64 variant=\"@causal\" seed=2"},

    /* -- Alignment and windows ----------------------------------------------------------------- */
    /* sq 2048, sk 1024: half of each twice over. */
    {"Dao#1778a", "dir=bwd dtype=bf16 H=1 NQ=512 NK=256 D=16 variant=\"@causal\" seed=1778"},
    {"Dao#1778b", "dir=bwd H=2 NQ=64 NK=32 D=16 variant=\"@causal\" sink=1 seed=1778"},
    /* S 16384, H 8, D 128: one narrow head that still passes 4096 rows; bits are compared, not
       values. */
    {"Dao#1133a", "check=window NQ=300 NK=300 H=2 D=32 variant=\"@causal\" seed=1133"},
    {"Dao#1133b", "check=window dtype=bf16 NQ=130 NK=257 H=2 D=64 variant=\"@causal\" seed=1133"},
    {"Dao#1133c", "check=window dir=bwd det=1 NQ=257 NK=130 H=2 D=64 variant=\"@causal\" "
                  "seed=1133"},
    {"Dao#1133d", "check=window dtype=f16 NQ=4160 NK=4160 D=8 variant=\"@causal\" seed=1133"},
    {"Dao#1116a", "check=refuse wrong=ready NQ=9 NK=9 variant=\"@window -1 -3\""},
    {"Dao#1116b", "dir=bwd H=2 NQ=9 NK=9 variant=\"q - k <= -1 && k - q <= -3\" want=0 "
                  "want_lse=-inf"},
    /* Every window edge: exactly l + 1 + r keys are seen, so with s = 0 and v = 0, 1, 2, ...
       known. */
    {"transformers#39408a", "NQ=6 NK=6 D=1 scale=0 variant=\"@window 1 0\" v=0,1,2,3,4,5 "
                            "want=0,0.5,1.5,2.5,3.5,4.5"},
    {"transformers#39408b", "NQ=6 NK=6 D=1 scale=0 variant=\"@window 2 1\" v=0,1,2,3,4,5 "
                            "want=0.5,1,1.5,2.5,3.5,4"},
    {"transformers#39408c", "NQ=2 NK=6 D=1 scale=0 variant=\"@window 1 0\" v=0,1,2,3,4,5 "
                            "want=3.5,4.5"},
    /* 64/8 heads: 8/1, one group of the same size. */
    {"ROCm/flash-attention#158", "dir=bwd dtype=bf16 H=8 HK=1 NQ=300 NK=300 D=16 variant=\"@window "
                                 "128 0\" seed=158"},
    {"pytorch#108108a", "NQ=2 NK=4 D=1 scale=0 variant=\"@causal\" v=1,2,3,4 want=2,2.5"},
    {"pytorch#108108b", "NQ=2 NK=4 D=1 scale=0 top_left=1 variant=\"@causal\" v=1,2,3,4 "
                        "want=1,1.5"},
    {"pytorch#108108c", "dir=bwd B=2 H=2 NQ=70 NK=33 D=16 top_left=1 variant=\"@causal\" "
                        "seed=108108"},

    /* -- Magnitudes ---------------------------------------------------------------------------- */
    {"lattice#361a", "NQ=2 NK=2 D=1 scale=1 variant=\"k != 1\" q=-20000,0 k=1,0 v=1,100 want=1"},
    {"lattice#361b", "NQ=1 NK=2 D=2 scale=1 variant=\"k != 1\" q=-20000,0 k=1,0,1,0 DV=1 v=1,100 "
                     "want=1"},
    {"latticePR373", "dir=bwd H=2 NQ=40 NK=40 D=16 shift=-500000 variant=\"@causal\" seed=373"},
    /* q and k of 133120: the product is 1.77e10, and s - m must be exactly 0 for both keys. */
    {"aotriton#54", "dtype=bf16 NQ=1 NK=2 D=1 scale=1 q=133120 k=133120 v=1,3 want=2"},
    {"aotriton#54b", "dir=bwd dtype=bf16 H=2 NQ=70 NK=70 D=16 mul=100000 seed=54"},
    {"pytorch#147460a", "B=2 H=2 NQ=7 NK=7 D=32 dtype=f16 variant=\"@bias 1 0 0 1\" "
                        "caps=\"bias:f16:2x1x1x7:m65504\" seed=147460"},
    {"pytorch#147460b", "NQ=7 NK=7 D=1 scale=0 variant=\"s + (k < 3 ? -65504 : 0)\" "
                        "v=9,9,9,1,2,3,4 want=2.5"},
    {"ocannl#548", "dir=bwd dtype=f16 H=2 NQ=40 NK=40 D=16 variant=\"s + (k <= q ? 0 : -1e9)\" "
                   "seed=548"},

    /* -- Size and indexing --------------------------------------------------------------------- */
    /* 1600 x 729 x 16 x 72: B H 25600 stays above 2^14, rows and keys go down to 3 and 4. */
    {"Dao#2214", "dtype=bf16 B=1600 H=16 NQ=3 NK=4 D=8 seed=2214"},
    {"Dao#2214b", "dir=bwd dtype=bf16 H=2 NQ=365 NK=365 D=72 seed=2214"},
    /* Batch 15000: the same, with 2 rows and 3 keys. */
    {"DaoPR1500", "dir=bwd det=1 B=15000 H=2 NQ=2 NK=3 D=4 seed=1500"},
    /* S 256K rows of 6144: rows, heads or batch entries further apart than 2^31 elements, in one
       tensor of each case, for a machine must have that much memory to give it out. */
    {"Dao#767-q", "dir=bwd dtype=bf16 NQ=9 NK=17 D=16 lq=huge variant=\"@causal\" seed=767"},
    {"Dao#767-k", "dir=bwd dtype=f16 H=2 NQ=9 NK=17 D=16 lk=huge seed=768"},
    {"Dao#767-v", "dir=bwd dtype=bf16 B=2 H=2 NQ=9 NK=17 D=16 lv=huge variant=\"@causal\" "
                  "seed=769"},
    {"Dao#767-o", "dir=bwd dtype=bf16 H=2 NQ=9 NK=17 D=16 lo=huge variant=\"@causal\" seed=770"},
    {"Dao#767-dout", "dir=bwd dtype=f16 NQ=9 NK=17 D=16 ldo=huge dlse=1 seed=771"},
    {"Dao#767-dq", "dir=bwd dtype=bf16 B=2 NQ=9 NK=17 D=16 lg=huge grads=1 seed=772"},
    {"Dao#767-dk", "dir=bwd dtype=bf16 NQ=9 NK=17 D=16 lg=huge grads=2 seed=773"},
    {"Dao#767-dv", "dir=bwd dtype=f16 H=2 NQ=9 NK=17 D=16 lg=huge grads=4 seed=774"},
    {"Dao#483", "B=768 H=2 NQ=3 NK=5 D=16 seed=483"},
    /* A mask of 8 x 28 x 4096 x 4096: its strides pass 2^31, its extents are small. */
    {"alexzhang13/flashattention2-custom-mask#2", "dir=bwd B=2 H=2 NQ=9 NK=17 D=8 lc=huge "
                                                  "variant=\"@bias\" "
                                                  "caps=\"bias:f16:2x2x9x17:ninf\" seed=2"},
    /* B16 H60 D128, T 17477: the boundary is 2^31 elements of q; here it lies between the two
       rows. */
    {"fla#1080a", "dir=bwd dtype=bf16 NQ=2 NK=2 H=2 D=32 lq=huge seed=1080"},
    {"fla#1080b", "dtype=e4m3fn otype=bf16 NQ=2 NK=2 D=32 lo=huge seed=1080"},
    {"pytorch#142228a", "H=65536 NQ=1 NK=2 D=2 seed=142228"},
    {"pytorch#142228b", "B=65536 NQ=1 NK=2 D=2 seed=142228"},
    {"pytorch#146704", "dir=bwd B=65537 NQ=1 NK=2 D=2 dtype=bf16 variant=\"@causal\" seed=146704"},
    {"xformers#845", "dir=bwd H=65537 HK=1 NQ=1 NK=2 D=2 dtype=f16 seed=845"},
    /* D 576 for q and k with 512 for v: the CPU's bound is 512; 40 and 24 with the batch kept. */
    {"flashinfer#3125", "B=65537 NQ=1 NK=2 D=5 DV=3 dtype=bf16 seed=3125"},
    {"pytorch#145040a", "dir=bwd NQ=2 NK=65600 D=2 variant=\"bool m[2]; m[i][k]\" "
                        "caps=\"m:bool:2x65600:keep\" seed=145040"},
    {"pytorch#145040b", "dir=bwd NQ=65600 NK=2 D=2 variant=\"bool m[2]; m[i][k]\" "
                        "caps=\"m:bool:65600x2:keep\" seed=145040"},
    /* 500 x 350000 keys, 12 heads, batch 32: 5 x 35000, 1 head, batch 3. */
    {"Dao#47", "check=batch inv=1 B=3 H=1 NQ=5 NK=35000 D=4 seed=47"},
    {"Dao#47b", "check=batch inv=1 B=32 H=2 NQ=5 NK=350 D=16 dtype=bf16 variant=\"@causal\" "
                "seed=47"},
    /* Indices plus 23 * 1024 and 24 * 1024 compared with others in [0, 25600): one row and key in
       64. */
    {"pytorch#141183a", "H=1 NQ=400 NK=400 D=4 tq=25600 tk=25600 i0=1024 k0=24000 variant=\"i + 23 "
                        "* 1024 >= k\" seed=23"},
    {"pytorch#141183b", "H=1 NQ=400 NK=400 D=4 tq=25600 tk=25600 i0=100 k0=24400 variant=\"i + 24 "
                        "* 1024 >= k\" seed=24"},
    {"pytorch#141183c", "check=refuse wrong=overflow NQ=9 NK=9 D=4 tq=25600 tk=25600 variant=\"(i "
                        "+ 23 * 1024) * (k + 1024) * (q + 5) >= 0\""},

    /* -- Strides and layout -------------------------------------------------------------------- */
    {"Dao#355a", "dir=bwd dtype=f16 B=2 H=4 HK=1 NQ=32 NK=32 D=32 ldo=swapped seed=355"},
    {"Dao#355b", "dir=bwd dtype=f16 B=2 H=4 HK=1 NQ=32 NK=32 D=32 ldo=same_row seed=355"},
    {"ROCm/flash-attention#40", "dir=bwd dtype=bf16 B=2 H=3 NQ=40 NK=50 D=32 ldo=padded lo=swapped "
                                "lg=odd seed=40"},
    {"pytorchPR187506a", "check=refuse wrong=q_last H=2 NQ=5 NK=6"},
    {"pytorchPR187506b", "check=refuse dir=bwd wrong=dout_last H=2 NQ=5 NK=6"},
    {"FlagGems#5896", "dir=bwd dtype=f16 B=2 H=4 HK=2 NQ=20 NK=30 D=16 lv=swapped lk=reversed "
                      "seed=5896"},
    {"pytorch#176915a", "dir=bwd dtype=bf16 B=2 H=2 NQ=33 NK=65 D=24 lq=odd lk=odd lv=odd lo=odd "
                        "ldo=odd lg=odd variant=\"@causal\" seed=176915"},
    {"pytorch#176915b", "check=shard split=rows parts=3 dir=bwd grads=1 dtype=bf16 B=2 H=2 NQ=33 "
                        "NK=65 D=24 lq=swapped lk=odd lo=odd variant=\"@causal\" seed=176915"},
    {"xformers#683", "dir=bwd dtype=f16 B=2 H=2 NQ=13 NK=37 D=16 lc=odd variant=\"@bias\" "
                     "caps=\"bias:f16:2x2x13x37:normal\" seed=683"},
    {"xformers#684", "dir=bwd dtype=bf16 B=2 H=2 NQ=13 NK=37 D=16 lc=swapped variant=\"@bias\" "
                     "caps=\"bias:bf16:2x2x13x37:normal\" seed=684"},
    {"xformers#808", "dir=bwd B=2 H=2 NQ=7 NK=9 D=16 lc=padded variant=\"@bias 0 1 1 1\" "
                     "caps=\"bias:f32:1x2x7x9:normal\" seed=808"},
    {"xformers#813", "B=2 H=2 NQ=7 NK=1 D=16 lc=same_batch variant=\"@bias\" "
                     "caps=\"bias:f32:2x2x7x1:normal\" seed=813"},
    /* qo 10, kv 20: a mask of another rank is refused; of another extent, what lies outside is
       false. */
    {"flashinfer#3176a", "check=refuse wrong=capture_rank H=1 NQ=10 NK=20 variant=\"@bias\" "
                         "caps=\"bias:f32:1x1x10x20:normal\""},
    {"flashinfer#3176b", "dir=bwd NQ=10 NK=20 D=8 variant=\"bool m[2]; m[i][k]\" "
                         "caps=\"m:bool:10x10:keep\" seed=3176"},

    /* -- Head dimensions and groups ------------------------------------------------------------ */
    {"Sage#23", "dir=bwd dtype=bf16 H=2 NQ=65 NK=65 D=72 seed=23"},
    {"Dao#498a", "dir=bwd dtype=f16 B=2 H=2 NQ=97 NK=97 D=160 lq=padded lk=padded lv=padded "
                 "seed=498"},
    {"Dao#498b", "dir=bwd dtype=bf16 H=2 NQ=97 NK=97 D=192 variant=\"@causal\" seed=498"},
    /* 1 x 1024 x 128 heads: 128 rows, 2 heads. */
    {"one-warp-192", "H=2 NQ=3 NK=70 D=192 seed=192"},
    {"one-warp-256", "H=2 NQ=3 NK=70 D=256 DV=192 variant=\"@causal\" seed=256"},
    {"Dao#2087a", "dir=bwd dtype=bf16 H=2 NQ=128 NK=128 D=192 DV=128 variant=\"@causal\" "
                  "seed=2087"},
    {"Dao#2087b", "dir=bwd dtype=bf16 H=2 NQ=128 NK=128 D=192 DV=128 seed=2087"},
    {"Dao#2552a", "dir=bwd dtype=bf16 H=2 NQ=70 NK=129 D=128 DV=96 seed=2552"},
    {"Dao#2552b", "dir=bwd dtype=bf16 H=2 NQ=70 NK=129 D=128 DV=80 variant=\"@causal\" seed=2552"},
    {"Dao#2552c", "dir=bwd dtype=f16 H=2 NQ=70 NK=65 D=96 DV=128 seed=2552"},
    {"Dao#2552d", "dir=bwd H=2 NQ=20 NK=65 D=1 DV=33 seed=2552"},
    {"DaoPR2553", "dir=bwd dtype=bf16 B=2 H=8 HK=2 NQ=3 NK=70 D=64 lo=swapped seed=2553"},
    {"TE#3216", "dir=bwd dtype=bf16 B=2 H=16 HK=2 NQ=40 NK=40 D=256 mul=50 variant=\"@causal\" "
                "seed=3216"},
    {"huggingface/kernels-community#1085", "dir=bwd dtype=bf16 H=8 HK=2 NQ=8 NK=8 D=64 "
                                           "variant=\"@causal\" seed=1085"},
    {"huggingface/kernels-community#1085b", "check=refuse wrong=groups H=8 HK=3 NQ=8 NK=8"},

    /* -- Scores and masks of users ------------------------------------------------------------- */
    {"pytorch#159247", "dir=bwd H=2 NQ=100 NK=333 D=16 bm=128 bn=128 dense=70 seed=159247"},
    /* A block mask made for far more rows and keys than are there, with LSE. */
    {"pytorch#136232", "dir=bwd dlse=1 B=2 H=2 NQ=256 NK=256 D=8 qused=33,0 kused=40,256 bm=64 "
                       "bn=32 dense=60 larger=1 seed=136232"},
    {"gym#34", "H=2 NQ=512 NK=512 D=4 qused=64 kused=64 bm=128 bn=128 larger=1 variant=\"@causal\" "
               "seed=34"},
    {"pytorch#133717a", "B=4 H=4 HK=2 NQ=1 NK=200 D=32 kused=129,130,131,132 variant=\"@causal\" "
                        "larger=1 stale=1 seed=133717"},
    {"pytorch#133717b", "B=3 H=2 NQ=2 NK=300 D=16 kused=128,257,300 variant=\"@window 40 0\" "
                        "larger=1"},
    /* S 8192: 300. The gradient of a number, once captured as a number and once as a tensor. */
    {"pytorch#145208a", "dir=bwd H=2 NQ=300 NK=300 D=16 variant=\"s * scale0 + shift0\" "
                        "caps=\"scale0=1.25 shift0=0.5\" seed=145208"},
    {"pytorch#145208b", "dir=bwd H=2 NQ=30 NK=30 D=64 variant=\"s + c * (k - q)\" "
                        "caps=\"c:f32:1:0.03\" seed=145208"},
    {"pytorchPR185991", "dir=bwd H=2 NQ=30 NK=40 D=16 variant=\"t[h][k] * 2\" "
                        "caps=\"t:f32:2x40:normal\" seed=185991"},
    {"flashinferPR1028", "dir=bwd H=2 NQ=30 NK=40 D=16 stale=1 seed=1028"},
    {"flashinferPR1028b", "H=2 NQ=30 NK=40 D=16 stale=1 variant=\"bool m[2]; m[i][k]\" "
                          "caps=\"m:bool:30x40:keep\" seed=1028"},

    /* -- Lengths in decoding ------------------------------------------------------------------- */
    /* Page 4, length 13: 16 rows of memory, the last 3 are NaN. */
    {"flashinfer#941", "B=2 H=4 HK=2 NQ=1 NK=16 D=32 kused=13 ends=nan variant=\"@causal\" "
                       "seed=941"},
    {"Dao#1579", "B=3 H=4 HK=1 NQ=1 NK=384 D=16 kused=128,129,300 seed=1579"},
    {"vllm#27547", "B=3 H=4 HK=1 NQ=1 NK=80 D=16 kused=16,17,64 stale=1 seed=27547"},
    /* heads 14/2, D 64, 19802 keys: 1980 keys, D 16; entry 0 must keep its bits beside any other.
       */
    {"vllm#51902", "check=batch inv=1 B=2 H=14 HK=2 D=16 packed=both qlens=1,9 klens=1980,40 "
                   "seed=51902"},
    {"vllm#51902b", "check=batch inv=1 B=2 H=14 HK=2 D=16 packed=both qlens=1,10 klens=1980,40 "
                    "seed=51902"},
    {"FlashMLA#212", "check=batch inv=1 B=4 H=4 HK=1 NQ=2 NK=300 D=72 DV=64 kused=300,5,0,77 "
                     "dtype=bf16"},

    /* -- FP8 ----------------------------------------------------------------------------------- */
    {"Dao#2577", "dtype=e4m3fn H=6 HK=1 NQ=9 NK=256 D=128 qs=head ks=head vs=head seed=2577"},
    {"vllmPR51363", "dtype=e4m3fn B=2 H=4 HK=2 NQ=20 NK=300 D=32 qs=qblock ks=block vs=block "
                    "seed=51363"},
    {"CKPR3423", "dtype=e4m3fnuz NQ=128 NK=128 D=64 qs=one ks=one vs=one seed=3423"},
    {"small-v-scale", "dtype=f16 otype=f32 H=2 NQ=40 NK=130 D=64 vs=one vmul=1e-6 seed=61"},
    {"v-scale-falls", "dtype=f16 otype=f32 H=4 HK=2 NQ=20 NK=500 D=64 inv=1 vs=block vmul=1e-7 "
                      "variant=\"k % 256 < 128\" seed=62"},
    {"v-scale-rises", "dtype=f16 otype=f32 NQ=70 NK=500 D=32 inv=1 vs=block vmul=1e8 seed=63"},
    {"v-scale-apart", "dtype=f16 otype=f32 NQ=20 NK=300 D=32 vs=block vmul=1e-30 "
                      "variant=\"k % 256 < 128 ? s : -inf\" seed=64"},
    {"v-scale-none", "dtype=f16 otype=f32 NQ=20 NK=300 D=32 vs=block vmul=0 seed=65"},
    {"Sage#221", "dtype=e5m2 H=2 NQ=40 NK=130 D=64 qs=block ks=block vs=block mul=50 seed=221"},
    {"Dao#1169", "dtype=e4m3fn H=2 NQ=70 NK=70 D=64 variant=\"@causal\" vs=block seed=1169"},
    {"Dao#1848", "dtype=e5m2fnuz H=2 NQ=40 NK=70 D=32 ks=head otype=f32 seed=1848"},

    /* -- Dropout, determinism, LSE, stale data, ALiBi ------------------------------------------ */
    {"Dao#1195", "dir=bwd dtype=bf16 B=2 H=3 NQ=9 NK=9 D=72 lk=huge seed=1195"},
    {"CKPR3135", "check=repeat dir=bwd det=1 dtype=f16 H=2 HK=1 NQ=200 NK=520 D=32 dropout=0.2 "
                 "dseed=3135 variant=\"@bias ~ @window 64 10\" "
                 "caps=\"bias:f16:1x2x200x520:normal\" seed=3135"},
    {"CKPR3135b", "check=dropout dir=bwd B=2 H=2 HK=1 NQ=50 NK=130 D=32 dropout=0.2 dseed=3135 "
                  "offset=9 variant=\"@window 20 10\" seed=3135"},
    {"Dao#1817a", "dir=bwd B=2 H=2 NQ=20 NK=30 D=16 dlse=1 seed=1817"},
    {"Dao#1817b", "dir=bwd dtype=bf16 B=2 H=2 NQ=20 NK=30 D=16 dlse=1 sink=1 variant=\"@causal\" "
                  "seed=1817"},
    {"Dao#1164", "dir=bwd B=3 H=2 NQ=40 NK=60 D=16 qused=40,7,0 kused=1,60,33 stale=1 seed=1164"},
    {"torchtitan#3893", "dir=bwd B=3 H=2 D=16 packed=both qlens=33,1,20 klens=33,1,20 stale=1 "
                        "longest=1 variant=\"@causal\" seed=3893"},
    {"flashinfer#5015", "dir=bwd B=3 H=2 D=16 packed=both qlens=33,1,20 klens=33,1,20 spare=64 "
                        "ends=inf larger=1 seed=5015"},
    {"Dao#907a", "dir=bwd H=5 NQ=40 NK=40 D=16 variant=\"@alibi ~ @causal\" "
                 "caps=\"slopes:f32:5:slopes\""},
    {"Dao#907b", "H=5 NQ=1 NK=40 D=16 variant=\"@alibi ~ @causal\" caps=\"slopes:f32:5:slopes\""},
    {"Dao#1585", "dir=bwd H=12 HK=4 NQ=20 NK=70 D=16 dtype=bf16 variant=\"@alibi 12 ~ @causal\" "
                 "seed=1585"},
    {"flashinfer#1606a", "check=shard split=heads parts=3 dir=bwd H=12 HK=6 NQ=20 NK=30 D=16 "
                         "variant=\"@alibi 12\" seed=1606"},
    {"flashinfer#1606b", "H=4 NQ=20 NK=30 D=16 h0=8 th=12 variant=\"@alibi 12\" seed=1606"},

    /* -- Properties of DESIGN.md section 6 ----------------------------------------------------- */
    {"repeat", "check=repeat dir=bwd det=1 B=2 H=4 HK=2 NQ=70 NK=130 D=32 variant=\"@causal ~ "
               "@relative 5\" caps=\"table:f32:4x11:normal\" sink=1 dlse=1"},
    {"repeat-bf16", "check=repeat dir=bwd det=1 dtype=bf16 B=2 H=4 HK=1 NQ=70 NK=130 D=64 "
                    "dropout=0.3"},
    {"in-turns-down", "dir=bwd det=1 dtype=bf16 H=3 NQ=8192 NK=260 D=16 variant=\"q % 1024 < 20 && "
                      "(q / 1024 + k / 128) % 2 > 0\" seed=5"}, /* of the last head */
    {"threads", "check=threads dir=bwd det=1 B=3 H=4 HK=2 NQ=70 NK=130 D=32 variant=\"@causal\" "
                "sink=1"},
    {"threads-captures", "check=threads dir=bwd det=1 dtype=bf16 B=3 H=4 HK=2 NQ=70 NK=70 D=16 "
                         "variant=\"@relative 5 ~ c * tanh(s / c)\" caps=\"table:f32:4x11:normal "
                         "c=3\""},
    {"batch-32", "check=batch inv=1 dir=bwd det=1 B=32 H=2 NQ=9 NK=65 D=16 variant=\"@causal\""},
    {"batch-alibi", "check=batch inv=1 dtype=bf16 H=4 NQ=300 NK=400 D=128 "
                    "variant=\"@causal ~ @alibi 4\" seed=3"},
    {"batch-dropout", "check=batch inv=1 dir=bwd det=1 B=3 H=4 HK=2 NQ=66 NK=65 D=16 dropout=0.4 "
                      "sink=1"},
    {"merge", "check=merge parts=5 B=2 H=4 HK=2 NQ=33 NK=300 D=32 sink=1 variant=\"@causal ~ "
              "@alibi 4\""},
    {"merge-bf16", "check=merge parts=3 dtype=bf16 B=2 H=4 HK=2 NQ=33 NK=65 D=64 dropout=0.2 "
                   "variant=\"@window 20 5\""},
    {"shard-rows", "check=shard split=rows parts=3 dir=bwd grads=1 B=2 H=2 NQ=65 NK=40 D=16 "
                   "dropout=0.3 variant=\"@causal\" sink=1"},
    {"shard-batch", "check=shard split=batch parts=3 dir=bwd grads=7 B=5 H=2 NQ=20 NK=40 D=16 "
                    "dropout=0.3 variant=\"b % 2 == 0 || k <= q\""},
    {"shard-heads", "check=shard split=heads parts=2 dir=bwd grads=15 B=2 H=6 HK=3 NQ=20 NK=40 "
                    "D=16 dropout=0.3 sink=1 variant=\"s * (1 + 0.1 * h / nh)\""},
    {"dropout", "check=dropout dir=bwd B=2 H=3 NQ=33 NK=97 D=16 dropout=0.5 dseed=-7 offset=3 b0=2 "
                "tb=9 h0=4 th=8 i0=5 tq=90 k0=32 tk=200"},
    {"dropout-keys-odd", "dir=bwd H=2 NQ=70 NK=133 D=16 dropout=0.4 dseed=3 k0=37 tk=400"},
    {"dropout-edges-a", "dir=bwd NQ=40 NK=40 D=8 dropout=1e-9 dseed=5"},
    {"dropout-edges-b", "dir=bwd NQ=40 NK=40 D=8 dropout=0.999999 dseed=5"},
    {"dropout-seed-at", "dir=bwd H=2 NQ=40 NK=70 D=8 dropout=0.3 dseed=77 seedat=1"},
    {"isolate-packed", "check=isolate dir=bwd det=1 B=3 H=2 D=16 packed=both qlens=5,0,40 "
                       "klens=70,9,33 ends=nan variant=\"@window 5 0\""},
    /* A row beside one that is not finite keeps its bits. */
    {"beside-nan-f32", "check=batch dtype=f32 NQ=16 NK=100 D=64 seed=5 inv=1 plant=nan where=q"},
    {"beside-nan-f16", "check=batch dtype=f16 B=2 NQ=32 NK=100 D=64 seed=3 inv=1 plant=nan where=q"},
    /* Numbers of f16 below 2^-14, which some matrix units take for 0; with and without large ones. */
    {"subnormal-v", "dtype=f16 NQ=40 NK=100 D=32 v=3e-5,1e-6,5e-5,-2e-5,6e-7"},
    {"subnormal-v-large", "dtype=f16 NQ=40 NK=100 D=32 v=100,3e-5,-2e-5,80,1e-6,2e-5,3"},
    {"large-v", "dtype=f16 NQ=40 NK=100 D=32 v=100,200,-64,3,1,-0.5,0.25"},
    {"subnormal-k", "dtype=f16 NQ=40 NK=100 D=32 scale=300 q=1,-2,0.5 "
                    "k=3e-5,1e-6,-2e-5,4e-5,5e-5,1e-5,-6e-5"},
    {"subnormal-k-large", "dtype=f16 NQ=40 NK=100 D=32 q=1,-2,0.5 k=100,3e-5,-2e-5,70,0.01,0,-64"},
    {"subnormal-q-large", "dtype=f16 NQ=40 NK=100 D=32 q=100,3e-5,-2e-5,70,0.01 k=1,-0.2,0.5"},
    {"subnormal-q-k", "dtype=f16 NQ=40 NK=100 D=32 scale=3e6 q=3e-5,1e-6,-2e-5 "
                      "k=3e-5,1e-6,-2e-5,5e-5"},
    {"visible-nan-q", "dir=bwd B=2 H=2 NQ=70 NK=70 D=16 variant=\"@causal\" plant=nan where=q"},
    {"visible-inf-k", "dir=bwd B=2 H=2 NQ=70 NK=70 D=16 variant=\"@causal\" plant=inf where=k"},
    {"visible-nan-v", "dir=bwd B=2 H=2 NQ=70 NK=70 D=16 variant=\"@causal\" plant=nan where=v"},
    /* Infinity in parts, as tensor cores multiply f32, makes NaN, of which a score or a mask may make
       what is finite. */
    {"inf-k-constant-score", "dir=bwd NQ=32 NK=32 D=32 seed=528235 variant=\"0.5\" plant=ninf "
                             "where=k"},
    {"inf-k-tensor-score", "dir=bwd H=2 NQ=90 NK=70 D=32 seed=5 variant=\"t[k]\" "
                           "caps=\"t:f32:70:normal\" plant=ninf where=k grads=1"},
    {"inf-k-mask-of-s", "dir=bwd NQ=90 NK=70 D=32 seed=6 variant=\"s > -1.0\" plant=inf where=k"},
    {"inf-q-score-of-sign", "dir=bwd NQ=90 NK=70 D=64 seed=7 variant=\"s < 0 ? s : 1.0\" plant=inf "
                            "where=q"},
    {"visible-inf-v", "dir=bwd dtype=bf16 H=2 NQ=70 NK=70 D=16 variant=\"@window 9 0\" plant=inf "
                      "where=v"},
    {"batch-alibi", "check=batch inv=1 dtype=f16 B=2 H=2 NQ=200 NK=300 D=128 scale=2 seed=32 "
                    "variant=\"@alibi 2\""},
    {"batch-softcap", "check=batch inv=1 dtype=bf16 B=2 H=2 NQ=200 NK=300 D=128 seed=33 "
                      "variant=\"@causal ~ @softcap 5\""},
    {"isolate-few-bf16", "check=isolate dtype=bf16 B=2 NQ=6 NK=127 D=64 seed=952137 bm=128 "
                         "bn=64 dense=64 lists=b1"},
    {"visible-inf-v-far", "dtype=bf16 H=2 NQ=7 NK=24 D=16 variant=\"@bias 0 0 1 0\" caps=\"bias:f32:"
                          "1x1x7x1:min\" sink=1 plant=ninf where=v"},
    {"visible-inf-dout-far", "dir=bwd H=2 NQ=60 NK=50 D=24 variant=\"s - x * abs(q - k)\" caps=\"x="
                             "10\" plant=inf where=dout"},
    {"visible-nan-dout", "dir=bwd B=2 H=2 NQ=70 NK=70 D=16 variant=\"@causal\" plant=nan "
                         "where=dout"},
    {"lengths-out-of-range", "dir=bwd B=4 H=2 NQ=9 NK=17 D=8 qused=-3,9,400,2 kused=17,-1,5,1000"},
    {"sink-far-above", "dir=bwd H=2 NQ=11 NK=20 D=8 sink=1 variant=\"s - 80\""},
    {"sink-alone", "dir=bwd H=2 NQ=5 NK=7 D=8 sink=1 variant=\"false\" want=0 dlse=1"},
    {"scale-zero", "NQ=1 NK=4 D=3 DV=1 scale=0 v=1,2,3,4 want=2.5"},
    {"scale-negative", "dir=bwd H=2 NQ=20 NK=30 D=8 scale=-0.7"},
    {"one-of-each-gradient-dq", "dir=bwd grads=1 H=4 HK=2 NQ=20 NK=30 D=8 variant=\"@causal\""},
    {"one-of-each-gradient-dk", "dir=bwd grads=2 H=4 HK=2 NQ=20 NK=30 D=8 variant=\"@causal\""},
    {"one-of-each-gradient-dv", "dir=bwd grads=4 H=4 HK=2 NQ=20 NK=30 D=8 variant=\"@causal\""},
    {"one-of-each-gradient-dsink", "dir=bwd grads=8 H=4 HK=2 NQ=20 NK=30 D=8 sink=1"},
    {"one-of-each-gradient-captures", "dir=bwd grads=16 H=2 NQ=20 NK=30 D=8 variant=\"s + "
                                      "t[h][k]\" caps=\"t:f32:2x30:normal\""},

    /* -- Composition: the text is shared by all, so the results are stated --------------------- */
    {"compose-scores-chain", "NK=2 D=1 scale=0 variant=\"s + 1 ~ s * k\" v=0,1 want=0.73105858 "
                             "want_lse=1.3132617"},
    {"compose-order", "NK=2 D=1 scale=0 variant=\"s * k ~ s + k\" v=0,1 want=0.73105858"},
    {"compose-masks-and", "NK=6 D=1 scale=0 variant=\"k > 0 ~ k < 3\" v=9,1,2,9,9,9 want=1.5"},
    {"compose-any-or", "NK=4 D=1 scale=0 variant=\"any ~ k < 1 ~ k > 2\" v=1,9,9,4 want=2.5"},
    {"compose-text", "NK=4 D=1 scale=0 variant=\"k < 2 ? s : -inf\" v=1,2,9,9 want=1.5"},
    {"compose-text-else", "NK=4 D=1 scale=0 variant=\"k < 2 ? false : true\" v=9,9,1,2 want=1.5"},
    {"compose-mask-of-a-score", "NK=4 D=1 scale=1 q=1 k=0,1,2,3 variant=\"s * 0 ~ s < 1 && k > 1\" "
                                "v=9,9,1,2 want=1.5"},
    {"compose-masked-stays-masked", "NQ=2 NK=2 D=1 variant=\"@bias ~ @softcap 3\" "
                                    "caps=\"bias:f32:1x1x2x2:-inf\" want=0 want_lse=-inf"},
    {"compose-masked-stays-masked-b", "NK=4 D=1 scale=0 variant=\"k < 2 ? s : -inf ~ 2 * tanh(s)\" "
                                      "v=1,2,9,9 want=1.5"},
    {"compose-computed-infinity", "NK=3 D=1 scale=0 variant=\"log(k) ~ 2 * tanh(s)\" v=9,1,1 "
                                  "want=1"},
    {"compose-masked-stays-masked-c", "NK=4 D=1 scale=0 variant=\"k < 2 ~ k >= 0 ~ s + 1\" "
                                      "v=1,2,9,9 want=1.5 want_lse=1.6931472"},
    {"read-number", "NK=2 D=1 scale=0 variant=\"s + x0 * k\" caps=\"x0=0.6931472\" v=0,3 want=2"},
    {"read-number-in-memory", "NK=2 D=1 scale=0 variant=\"s + x0 * k\" "
                              "caps=\"x0:f32:1:0.6931472\" v=0,3 want=2"},
    {"read-f32", "NK=2 D=1 scale=0 variant=\"s + t[k]\" caps=\"t:f32:2:index\" v=0,1 "
                 "want=0.73105858"},
    {"read-bf16", "NK=2 D=1 scale=0 variant=\"s + t[k]\" caps=\"t:bf16:2:index\" v=0,1 "
                  "want=0.73105858"},
    {"read-i32", "NK=4 D=1 scale=0 variant=\"i32 t[1]; t[k] == 2\" caps=\"t:i32:4:index\" "
                 "v=9,9,5,9 want=5"},
    {"read-two-indices", "NQ=2 NK=2 D=1 scale=0 variant=\"i32 t[2]; t[i][k] == 1 || t[i][k] == 2\" "
                         "caps=\"t:i32:2x2:index\" v=3,7 want=7,3"},

    /* -- Derivatives of every operation -------------------------------------------------------- */
    {"grad-arithmetic", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"-(s * a - d / c + abs(s - a) * "
                        "0.3)\" caps=\"a=0.7 d=1.3 c=2.1\""},
    {"grad-mod", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"s + t[k] % 1.5 + fmod(t[k] * 2, 0.7) * s\" "
                 "caps=\"t:f32:17:normal\""},
    {"grad-mod-divisor", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"s + 7.3 % c + fmod(9.7, c)\" "
                         "caps=\"c=1.7\""},
    {"grad-pow", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"pow(1.2 + abs(s), a) + pow(t[k], 2)\" "
                 "caps=\"a=1.3 t:f32:17:positive\""},
    {"grad-exp", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"exp(s * a) + exp2(s * c)\" caps=\"a=0.3 "
                 "c=0.4\""},
    {"grad-log", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"log(a + s * s) + log2(c + abs(s))\" "
                 "caps=\"a=0.9 c=1.4\""},
    {"grad-tanh", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"c * tanh(s / c + t[h])\" caps=\"c=1.5 "
                  "t:f32:2:normal\""},
    {"grad-sqrt", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"sqrt(a + s * s) * s\" caps=\"a=0.8\""},
    {"grad-sin-cos", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"sin(s * a + t[k]) + cos(s + t[k]) * c\" "
                     "caps=\"a=1.1 c=0.6 t:f32:17:normal\""},
    {"grad-wide-f32", "dir=bwd H=4 HK=2 NQ=70 NK=90 D=256 DV=200 variant=\"@causal\""},
    {"grad-min-max", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"min(s, a) + max(s * 0.5, t[k])\" "
                     "caps=\"a=0.4 t:f32:17:normal\""},
    {"grad-select", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"(k - q) % 2 == 0 ? s * t[k] : s - t[i]\" "
                    "caps=\"t:f32:17:normal\""},
    {"grad-square-loss", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"x = s * w[h] + t[k]; x * x * 0.2 + "
                         "x\" caps=\"w:f32:2:normal t:f32:17:normal\""},
    {"grad-four-indices", "dir=bwd B=2 H=3 NQ=9 NK=17 D=8 variant=\"s + t[b][h][i % 4][floordiv(k, "
                          "5)]\" caps=\"t:f32:2x3x4x4:normal\""},
    {"grad-outside", "dir=bwd H=2 NQ=9 NK=17 D=8 variant=\"s + t[k - q + 3]\" "
                     "caps=\"t:f32:7:normal\""},

    /* -- What must be refused ------------------------------------------------------------------ */
    {"refuse-k-dim", "check=refuse wrong=k_dim H=2 NQ=5 NK=6"},
    {"refuse-v-rows", "check=refuse wrong=v_rows H=2 NQ=5 NK=6"},
    {"refuse-k-batch", "check=refuse wrong=k_batch H=2 NQ=5 NK=6"},
    {"refuse-q-rank", "check=refuse wrong=q_rank H=2 NQ=5 NK=6"},
    {"refuse-q-extent", "check=refuse wrong=q_extent H=2 NQ=5 NK=6"},
    {"refuse-k-type", "check=refuse wrong=k_type H=2 NQ=5 NK=6"},
    {"refuse-q-type", "check=refuse wrong=q_type H=2 NQ=5 NK=6"},
    {"refuse-q-lanes", "check=refuse wrong=q_lanes H=2 NQ=5 NK=6"},
    {"refuse-o-type", "check=refuse wrong=o_type H=2 NQ=5 NK=6"},
    {"refuse-device", "check=refuse wrong=q_device H=2 NQ=5 NK=6"},
    {"refuse-reach", "check=refuse wrong=q_reach H=2 NQ=5 NK=6"},
    {"refuse-head-dim", "check=refuse wrong=head_dim H=2 NQ=5 NK=6 D=1000"},
    {"refuse-o-overlap", "check=refuse wrong=o_overlap H=2 NQ=5 NK=6 lo=same_head"},
    {"refuse-dk-overlap", "check=refuse wrong=dk_overlap dir=bwd grads=2 H=2 NQ=5 NK=6 "
                          "lg=same_row"},
    {"refuse-lse-shape", "check=refuse wrong=lse_shape H=2 NQ=5 NK=6"},
    {"refuse-lse-missing", "check=refuse wrong=lse_missing dir=bwd H=2 NQ=5 NK=6"},
    {"refuse-o-missing", "check=refuse wrong=o_missing H=2 NQ=5 NK=6"},
    {"refuse-dout-shape", "check=refuse wrong=dout_shape dir=bwd H=2 NQ=5 NK=6"},
    {"refuse-dv-shape", "check=refuse wrong=dv_shape dir=bwd H=2 NQ=5 NK=6"},
    {"refuse-sink-shape", "check=refuse wrong=sink_shape sink=1 H=2 NQ=5 NK=6"},
    {"refuse-k-used-shape", "check=refuse wrong=k_used_shape kused=3 H=2 NQ=5 NK=6"},
    {"refuse-offsets-missing", "check=refuse wrong=offsets_missing packed=both H=2 NQ=5 NK=6"},
    {"refuse-offsets-shape", "check=refuse wrong=offsets_shape packed=both B=3 H=2 NQ=5 NK=6"},
    {"refuse-scale-nan", "check=refuse wrong=scale_nan H=2 NQ=5 NK=6"},
    {"refuse-scale-inf", "check=refuse wrong=scale_inf H=2 NQ=5 NK=6"},
    {"refuse-scale-unsaid", "check=refuse wrong=scale_unsaid H=2 NQ=5 NK=6"},
    {"refuse-k-scale-shape", "check=refuse wrong=k_scale_shape ks=head H=2 NQ=5 NK=6"},
    {"refuse-dropout-one", "check=refuse wrong=dropout_one H=2 NQ=5 NK=6"},
    {"refuse-dropout-below", "check=refuse wrong=dropout_below H=2 NQ=5 NK=6"},
    {"refuse-dropout-nan", "check=refuse wrong=dropout_nan H=2 NQ=5 NK=6"},
    {"refuse-dropout-counter", "check=refuse wrong=counter dropout=0.5 H=2 NQ=5 NK=6 b0=2147483000 "
                               "tb=2147483600 th=8"},
    {"refuse-counts-shape", "check=refuse wrong=counts_shape bm=2 bn=3 H=2 NQ=5 NK=6"},
    {"refuse-block-rows", "check=refuse wrong=block_rows bm=2 bn=3 H=2 NQ=5 NK=6"},
    {"refuse-flag", "check=refuse wrong=flag_unknown H=2 NQ=5 NK=6"},
    {"refuse-origin", "check=refuse wrong=origin h0=2 H=2 NQ=5 NK=6"},
    {"refuse-total", "check=refuse wrong=total tk=5 H=2 NQ=5 NK=6"},
    {"refuse-capture-missing", "check=refuse wrong=capture_missing H=2 NQ=5 NK=6 variant=\"@bias\" "
                               "caps=\"bias:f32:1x2x5x6:normal\""},
    {"refuse-capture-type", "check=refuse wrong=capture_type H=2 NQ=5 NK=6 variant=\"@bias\" "
                            "caps=\"bias:f32:1x2x5x6:normal\""},
    {"refuse-capture-twice", "check=refuse wrong=capture_twice H=2 NQ=5 NK=6 variant=\"@bias\" "
                             "caps=\"bias:f32:1x2x5x6:normal\""},
    {"refuse-grad-shape", "check=refuse wrong=grad_shape dir=bwd H=2 NQ=5 NK=6 variant=\"@bias\" "
                          "caps=\"bias:f32:1x2x5x6:normal\""},
    {"refuse-text", "check=refuse wrong=text H=2 NQ=5 NK=6 variant=\"s + (k\""},
    {"refuse-alignment", "check=refuse wrong=alignment align=12 H=2 NQ=5 NK=6"},
    {"refuse-promise", "check=refuse wrong=promise align=16 lq=odd H=2 NQ=5 NK=6"},
    {"refuse-larger-run", "check=refuse wrong=larger_run H=2 NQ=5 NK=6"},
    {0},
};
// clang-format on
