"""The one home of every threshold, each with its reason and source beside it."""

from __future__ import annotations

# --- numerics: what is a fault and what is rounding --------------------------------------------------------
# The yardstick is the noise arm: the reference itself in the target's precision, on the same input. So every
# tolerance is a multiple of that arm's distance and follows the target's precision by construction.
# "Measured" below: `benchmarks/numerics_calibration.py`, random models of fifteen families (dense, GQA, MLA,
# sliding, linear, state space, experts, vision-language) with another attention, another experts
# implementation, another thread count, another batch, inductor and onnxruntime. Seven families set a value,
# the other eight judged it; both figures are given. SmolLM2-135M judged as well.

NUMERICS_ROUNDING_ULP = 12**-0.5
"""RMS error of rounding to nearest, in ULP: an error uniform over one ULP has variance 1/12. It is the least
spread that a token's gain is held to have. The noise itself counts as one ULP at least
(`numerics/measures/panel.py`), since an elementwise kernel may be off by one where another rounds rightly."""

NUMERICS_RATIO = 4.0
"""Relative L2 over the noise arm's, for the whole tensor and for its typical token. Measured on correct
kernels: 1.1 in bf16 (judged: 1.0; SmolLM2: 1.0), 1.3 in fp32 (judged: 1.4). Below the five units from which a
bug must be found; anchors (numerics, section 4) call 2 to 5 worth a look and more suspect."""

NUMERICS_WORST_TOKEN = 4.0
"""Worst token's relative L2 over the noise arm's worst. Measured on correct kernels: 1.2 in bf16 (judged:
1.0; SmolLM2: 1.9), 1.4 in fp32 (judged: 1.5), on 128 tokens or fewer. Among many the largest of two runs are
further apart where errors have a long tail, as in fp32, where no rounding of the output hides that some
tokens are ill-conditioned: 4.3 on 2,048 tokens of SmolLM2 on onnxruntime. The largest of n errors whose tail
falls as their square grows as sqrt(n); so the tolerance grows as sqrt(n / 128), but no further than the noise
arm's worst token is from its typical one, which is some twofold in bf16."""

NUMERICS_WORST_CHANNEL = 4.0
"""Largest relative L2 of a channel over that channel's noise, which counts as twice the typical channel's at
least. Measured on correct kernels: 1.4 in bf16 (judged: 1.7; SmolLM2: 2.1), 2.6 in fp32 (judged: 1.7), each
in eight steps of decoding, where a channel has eight elements."""

NUMERICS_GAIN_SCORE = 12.0
"""Mean token gain, as far as neither zero nor the noise arm's own reaches, over its standard error in the
noise arm. Measured on correct kernels: 1.1 in bf16 (judged: 1.5; SmolLM2: 7.8 on inductor), 4.2 in fp32
(inductor's sines). An output times 1.01 came to 40 at least on SmolLM2 over 128 tokens (29 over fewer)."""

NUMERICS_GAIN_SHARE = 0.5
"""Share of a typical token's rounding error that a mean gain must reach to count, however many tokens prove
it: with thousands of tokens even the harmless bias of a rounding mode is many standard errors from zero.
Measured in bf16: correct kernels stayed below 0.2 (0.46 with a biased rounding added on purpose), an output
times 1.01 above 1.06."""

NUMERICS_MIN_TOKENS = 8
"""Tokens below which a standard error over tokens says too little; the gain then does not apply."""

NUMERICS_OUTLIER = 8.0
"""Multiple of the noise arm's typical token error beyond which a token of a routed node counts as routed
otherwise: swapping one near-tied expert moves a token by far more than rounding, a gain of 1 % by less."""

NUMERICS_OUTLIER_SIGMA = 5.0
NUMERICS_OUTLIER_SPARE = 3
"""Tokens of a routed node that may be outliers: n + 5 sqrt(n + 1) + 3, n of them in the noise arm. Which
near-ties flip is chance, so both counts are about Poisson with the same mean; 2 to 5 % of the tokens flip in
each layer of a top-8 of 256 router at bf16's noise (anchors: numerics, section 3)."""

NUMERICS_ROUTER_SIGMA = 16.0
"""RMS errors of a token's scores in the noise arm that the reference's margin between two experts must exceed
for their swap to count as unexplained. The difference of two scores has the standard deviation sqrt(2) RMS
errors, so for a kernel with 2.4 times the noise arm's error (the worst correct one measured) this is 4.7 of
them, which rounding passes once in 10^6 tokens that are that near."""

NUMERICS_BUG_UNITS = 5.0
"""Units of noise from which a bug that is put in on purpose must be found. More than the tolerances, since
what is judged is the bug and the rounding together, and these may cancel in part."""

NUMERICS_PROPAGATED_RATIO = 5.0
"""Typical token's error on the target's own stream over that on the noise arm's, beyond which a node is off
by what it received. Two streams that round independently drift from the reference at the same pace;
measured: 0.6 to 1.3."""

NUMERICS_OBSERVER = {"bf16": 2**-8, "fp16": 2**-11, "fp32": 2**-22, "fp64": 2**-50}
"""Relative L2 between a target's logits node by node and as a whole up to which capturing changed nothing:
half an ULP. On the CPU both are equal to the last bit; a stack that fuses across nodes rounds less often."""

NUMERICS_HEADROOM = 0.25
"""Share of the largest number of the target's dtype beyond which a node is called near to overflow: another
prompt easily reaches four times the magnitude of this one."""

NUMERICS_TOKENS = 128
"""Tokens compared. Enough that an output times 1.01 is 40 standard errors from rounding in bf16 (measured on
SmolLM2-135M, least of all nodes), few enough that four passes in bf16 on two cores without bf16 units take
some 10 s."""

NUMERICS_SHORT_TOKENS = 32
NUMERICS_FEW_TOKENS = 8
NUMERICS_SHORT_WORK = 250_000_000_000
NUMERICS_LONG_TOKENS = 2048
NUMERICS_CHUNK_TOKENS = 64
NUMERICS_DECODE_STEPS = 8
"""Lengths of the other prompts: short ones for padding and shifted positions (shorter where nine of them take
more multiplications than this on one stream: a billion weights a token; what shifted positions and padding do
wrong, they do to each token), a long one, what goes beyond an attention window, and single tokens with a
cache: eight, so that a mean gain has a standard error."""

NUMERICS_BASE_BYTES = int(2.5 * 2**30)
"""What two processes with torch and transformers, the structure of a large model and the weights of one
attention take: the rest of the bound is shared out. Measured on the structure of DeepSeek-R1: 1.6 GiB, and
0.9 GiB of one attention with its shared expert in fp32 and bf16."""

NUMERICS_CHUNK_BYTES = 2**30
"""Experts in fp32 and in the target's precision that are in memory at a time; more gains nothing."""

NUMERICS_CACHE_BYTES = 256 * 2**20
NUMERICS_CACHE_BYTES_PER_ELEMENT = 16
"""Caches of all layers stay while they are smaller than this; an element costs its bytes in fp64 or fp32 and
in the target's precision on three streams."""

NUMERICS_PROMPT_WORK = 1_000_000_000_000
"""Multiplications on one stream up to which a long prompt is run unasked: 2,048 tokens of a model of half a
billion weights, about a minute for all streams on two cores without bf16 units."""

NUMERICS_DECISIVE_SIGMA = 4.0
"""RMS logit errors that the reference's margin must exceed for a disagreement to count: the difference of two
logits has the standard deviation sqrt(2) RMS errors, so this is nearly three of them."""

NUMERICS_DECISIVE_SHARE = 0.01
"""Share of positions that may disagree decisively by chance; measured: none of 192."""

NUMERICS_DISTINCT_TOKENS = 32
"""Different token ids below which a tokenizer is taken to know nothing of the shipped texts (a vocabulary of
amino acids, of another model's words): nodes would be compared on the unknown token over and over. The texts
have several languages and code; a tokenizer of plain bytes makes 168 different ids of them."""

NUMERICS_SAY_TOKENS = 8
NUMERICS_SAY_BYTES = 4 * 2**30
"""The reference continues the prompt by eight tokens where reading the weights eight times more is cheap,
that is up to 4 GiB of them (about a minute on two cores); beyond, by the one token that the comparison
itself gives."""

NUMERICS_KEEP_BYTES = 2 * 2**30
"""Memory in which the reference may keep its fp32 weights while it continues the prompt (it needs twice their
size)."""

# --- numerics: whether the reference itself is right -------------------------------------------------------

REFERENCE_AGREES = 1e-4
"""Largest relative L2 of a position's logits, ours against stock `from_pretrained`, both in fp32: the same
operators in another order of summation and with other experts kernels. Measured: SmolLM2-135M 1.4e-6, tiny
models of thirteen families 1.8e-6 at most. One unit in the last place of bf16 weights is
1e-3."""

REFERENCE_ROUTED_SHARE = 0.02
"""Share of positions of a mixture of experts that may lie beyond: a near-tie of the router within 1e-6 is
decided by the order of summation, and the tokens after it see it."""

REFERENCE_TOKENS = 128
"""Tokens on which both are run: the logits before them do not depend on those after, and every weight but
those of experts that no token takes is used by the first."""

REFERENCE_NATS_PER_CHARACTER = 0.8
"""Mean negative log-likelihood of a character of the shipped English text, beyond which it is not what a
language model finds likely. In characters, since tokens of one model are longer than those of another.
Measured on SmolLM2-135M-Instruct, one of the weakest models that are released (nats per token and per
character, then per token of the repeated beginning):

    read rightly                             1.94  0.46   0.20
    fp8 blocks, read rightly                 1.96  0.46   0.23
    block scales dropped                    16.04  3.80  16.72
    block scales transposed                 16.02  3.79  14.25
    block scales inverted                   15.13  3.58  15.91
    block scales dropped, q only             8.71  2.06   9.01
    block scale dropped of one of 210       13.15  3.11  13.69
    q and k swapped (first heads)            8.44  2.00   7.83
    k and v swapped                         13.52  3.20  15.87
    k and v swapped, one layer of thirty     4.97  1.18   4.70
    gate and up swapped                     24.79  5.87  21.14
    square matrices transposed (o)          11.00  2.61  11.12
    layers in the order of their names      10.19  2.41   9.84
    pairs of the rotary embedding wrong      5.31  1.26   5.26
    no rotary embedding                      5.14  1.22   5.16
    rotary scaling of 4 where there is none  3.63  0.86   3.46
    rotary base 1,000 for 100,000            2.46  0.58   2.87
    embedding's rows off by one              9.10  2.15   0.73
    not seen: o of one layer transposed      2.14  0.51   0.23
    not seen: two neighbouring layers        2.08  0.49   0.24
    not seen: rotary base 10,000             2.01  0.48   0.14
    random weights                          10.98  2.60  11.02"""

REFERENCE_COPIED_SHARE = 0.5
"""A model that reads what stands before needs for the repeated beginning less than half of what it needed for
the text (measured: a tenth; every fault above that touches attention: 0.75 to 1.2). So English that is
unlikely together with a repetition that is no likelier is a fault of reading, while English that is unlikely
alone may be a model of another language."""

REFERENCE_WORSE_THAN_UNIFORM = 1.0
"""Nats per token above the uniform distribution's, beyond which trained weights are read wrongly whatever the
model's language: training makes a model at least as cautious as that on text it does not know."""

# Sweep over precisions: what the model may lose where a role is held lower than the target holds it. Measured
# on SmolLM2-135M, 128 tokens, bf16 target: its own precision costs 0.0017 nats; int8 weights and inputs cost
# 0.0004 (embedding) to 0.031 (feed-forward), fp8 0.004 to 0.055.

NUMERICS_SWEEP_FACTOR = 3.0
"""KL at the output over that of the target's own precision, which whoever deploys in it accepts as it is.
Rounding errors of independent sources add in squares, and so does KL, so three times is what two more such
sources cost. Held against each role alone and against the whole policy."""

NUMERICS_SWEEP_KL = 5e-3
"""Nats per position that are always tolerated, for targets whose own precision costs next to nothing: what
msProbe accepts of an offline model (anchors: numerics, section 1b, KL < 0.005)."""

NUMERICS_SWEEP_KL_SHARE = 1e-3
"""The same as a share of the nats per position by which the reference's output differs from an even one,
where that is less: a model that hardly prefers one token, such as one with random weights, loses everything
at 0.005. SmolLM2-135M has 7.2, so only below some 5 nats this counts."""

NUMERICS_SWEEP_RATIO = 3.0**0.5
NUMERICS_SWEEP_REL_L2 = 5e-3
"""Where no forward shows the KL: error at a node over the noise of the target's own precision, the root of
the factor above since KL goes with the square of the error; or relative L2, that of bf16 itself. Measured: of
ten roles in fp8 and int8 these pass one (1.35 times the noise, KL 0.0019) of the three that KL lets pass and
none that it does not."""

NUMERICS_SWEEP_WORK = 10_000_000_000_000
"""Multiplications up to which each role in each precision has a forward of its own: eleven forwards of 128
tokens of a model of 7 billion weights, an hour or so on two cores in fp32."""

# --- numerics: the task metric ----------------------------------------------------------------------------

TASK_ABOVE_CHANCE = 0.05
"""By which the lower end of the reference's 95 % interval must exceed guessing before the task says
anything of a target. Random weights come within 0.06 of guessing on 230 questions (95 %), so that their
interval's lower
end stays below it. Measured: SmolLM2-135M answers 0.93, guessing gives 0.36."""

TASK_ANSWERED = 0.95
"""Share of the questions that the target must answer: what a server leaves out is not left out at random."""

NUMERICS_TRAINING_SETTINGS = {
    "lr": 2.0**-6,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 2.0,
}
"""AdamW of the one step of training that is compared; betas and eps are torch's defaults. Rate and decay are
far larger than anybody trains with: a weight of 0.03 has an ULP of 1e-4 in bf16, and both the step (1.6e-2)
and the decay (3 % of the weight, eight ULP) have to stand out from it, or a wrong one would be lost in
rounding."""

NUMERICS_TRAINING_TOKENS = 128
"""Tokens of the step, the first of the main prompt. Measured on SmolLM2-135M (its head has 49,152 words): the
two steps in bf16 and the one in fp32 take about half a minute on two cores without bf16 units."""

NUMERICS_TRAINING_BYTES = {"fp64": 100, "fp32": 88, "bf16": 56, "fp16": 56}
"""Bytes that a weight takes, precision of the target -> bytes: weight, gradient and two moments in the
reference's precision (16 in fp32, 32 in fp64), what is kept of each side (gradient and weight: 16, 8 and 8
for
an fp32 target), the target's own step in its worker, and one copy while an answer crosses."""

# --- reports: what counts as a change between two runs -----------------------------------------------------
# Facts are equal for equal inputs, so under one fingerprint any change is one; the band serves comparisons
# across versions, whose kernels round in another order.

METRIC_CHANGE_FACTOR = 1.5
"""A node's distance that moved by more than this factor is told as a change. A convention, wide enough for
another order of summation; a node that moved so far and stays within tolerance is a change, not a
regression."""

METRIC_CHANGE_FLOOR = {"rel_l2": 0.0, "gain_score": 6.1, "ratio": 1.0}
"""Below these a measure is rounding noise and may wander: correct targets stayed below a gain score of 6.1,
and a ratio of 1 is the noise arm's own distance (see numerics above)."""

NUMERICS_HEADROOM_SHOWN = 0.1
"""Share of the dtype's largest number from which the report lists a node as near to overflow: inputs of ten
times the magnitude are rare but not unheard of (massive activations, Sun et al. 2024)."""

SIGNATURE_BAND_FACTOR = 3.0
"""Times its run-to-run band that a node must have moved since the baseline to count as changed. The band is
one difference of two runs and a move another, so their ratio spreads; an estimate from 64 projections adds
9 % (standard deviation of a norm, sqrt(2 / 64) / 2)."""

OPERATOR_TOLERANCE: dict[str, float] = {
    "fp64": 1e-10,
    "fp32": 2e-5,
    "fp16": 4e-3,
    "bf16": 1.6e-2,
    "fp8_e4m3": 0.13,
    "fp8_e5m2": 0.26,
    "complex64": 2e-5,
}
"""Largest error of one operator against fp64, by the output's dtype (measure: tasks/coverage/comparison.py).

Half precisions: four units in the last place (4 * 2**-10, 4 * 2**-8), as a kernel that accumulates in fp32
and rounds once stays within half a unit; 2,392 replayed calls of seven model families on the CPU stayed below
0.0037 in bf16. fp32: 168 units, which leaves room for sums over some thousand terms in any order and for
approximated functions, and none for TF32 (2**-11 = 5e-4) or for a half-precision detour. fp8: one unit. fp64:
as fp32 in proportion, rounded up."""

OPERATOR_TOLERANCE_DEFAULT = 1.6e-2
"""For output dtypes not named above: as for bf16."""

OPERATOR_CONDITION = 4.0
"""Where the host's own kernel in the same dtype deviates from fp64 by more than a quarter of the tolerance,
so may the target by this many times as much, and by this many tolerances at most: attention over scores of
some hundreds loses in fp32 as many last digits as they have (measured: 2.5e-5, right to the digits that the
inputs allow)."""

KIND_DEVIATION: dict[str, float] = {"fp64": 1e-8, "fp32": 1e-3, "fp16": 2e-2}
"""Relative L2 deviation of one node from the CPU in the same dtype beyond which it counts as wrong: some ten
times what sound stacks give (1e-7 to 1e-5 in fp32, up to 5e-3 in bf16): random weights amplify."""
KIND_DEVIATION_DEFAULT = 5e-2
"""For dtypes not named above: as for bf16."""

PROBE_ELEMENTS = 2**18
"""Elements of all tensors of a probed call: 2 MB in fp64, so that its reference and the comparison take a few
milliseconds on two cores."""

PROBE_LARGEST = 2**20
"""Elements of the row's largest call, which is tried once in this size for what goes wrong in large calls
alone: more than 65,536 in one dimension, the limit of a launch grid, where the model has so many."""

PROBE_SECONDS = 60.0
"""Time limit of one replayed call: an exporting stack takes 1 to 2 s for one operator on two cores, a
just-in-time compiler up to 20 s for the first; what takes three times as long hangs."""

REFERENCE_SECONDS = 20.0
"""Time limit of one reference: on two cores it takes milliseconds (2,440 calls with their runs in bf16 took
18 s), so what takes a thousand times as long never returns."""

SLOW_FACTOR = 50.0
SLOW_TIMINGS = 5
SLOW_SECONDS = 0.25
"""An operator is slow that takes more than 50 times as long as the same call in the same dtype on the host's
CPU, and more than a quarter of a second, in each of five timings, since on a busy machine one or two say
nothing. A probe's call holds a million elements at most, which no accelerator should be slower at than two
CPU cores; 50 leaves room for transfers, launches and another process on the host."""

# --- scale: how large the checks are, and what is slow or large -------------------------------------------
# Sizes keep all tiers of a small model below 25 s on two CPU cores; an accelerator gets enough to fill it.

SCALE_GEMM_FLOPS = {"cpu": 2 * 10**9, "other": 2 * 10**12}
"""Most operations of one known-answer product. Two cores without bf16 units make some 13 GFLOP/s in bf16
(SmolLM2-135M, 64 tokens in 1.28 s), so a sample stays below 0.2 s; 2 TFLOP are a few milliseconds on an
accelerator of 2024."""

SCALE_GEMM_WEIGHT = 2**24
"""Most elements of the product's weight matrix: its exact integer form takes 8 bytes an element on the
host."""

SCALE_ATTENTION_SCORES = {"cpu": 2**21, "other": 2**25}
"""Most attention scores (heads x length x length) of the known-answer attention, held in fp64 on the host."""

SCALE_COLLECTIVE_ELEMENTS = {"cpu": 2**20, "other": 2**26}
"""Most elements a rank contributes to one collective: 4 MiB of fp32 take some 10 ms over gloo on loopback,
and 128 MiB of bf16 are in the flat part of an accelerator's bandwidth curve (the examples of
nccl-tests' README sweep up to 128 MiB)."""

SCALE_BUS_SHARE = 0.2
"""Share of two devices' bus bandwidth that all devices together must reach. Bus bandwidth is defined not to
depend on the number of ranks (nccl-tests PERFORMANCE.md), so a fifth is a broken link and no noise. Not
applied to CPUs, where four processes share two cores and runs of the same collective differ by 20 to 175
% (gloo, torch 2.13)."""

SCALE_MEMORY_FACTOR = 1.5
SCALE_MEMORY_SLACK = 96 * 2**20
"""Measured memory may be 1.5 times the expectation plus 96 MiB: allocators round up to pages of 2 MiB for
each of some thirty tensors, and the first call of a kernel library reserves its workspace."""

SCALE_LATENCY_FACTOR = 10.0
SCALE_LATENCY_SLACK = 1.0
"""First token: ten times the time that its multiplications take at the speed of the known-answer product,
plus a second for what is not multiplication (interpreter, norms, sampling). Eager on two cores stayed below
its multiplications' own time on SmolLM2-135M; a fallback off the device costs a hundredfold."""

SCALE_GROWTH_LENGTHS = (1024, 256, 64, 16)
"""Longest prompt of the model tier: the first of these whose batch stays within the work below. Batch and
length each grow fourfold up to it, which tells linear from quadratic growth in four points."""

SCALE_GROWTH_BATCH = 4

SCALE_GROWTH_FLOPS = {"cpu": 10**10, "other": 10**14}
"""Most operations of one prefill in the model tier: one to two seconds on two cores in bf16, a tenth of a
second on an accelerator. Work and not time is bounded, so that the same points run on a busy host."""

SCALE_WORKER_BYTES = 2**30
"""Memory of a worker before it holds a model: torch and transformers take 0.5 to 0.8 GiB."""

SCALE_DEVICE_SHARE = 0.9
"""Share of a device's memory that the model tier may plan with; engines reserve the same tenth (vLLM's
default)."""

# --- plan: what fits where ---------------------------------------------------------------------------------

PLAN_UTILISATION = 0.9
"""Share of a device's memory that an engine may use: vLLM's default `--gpu-memory-utilization`, also named in
the commands so that the arithmetic and the run agree."""

PLAN_BATCHED_TOKENS = 8192
"""Tokens of one scheduler step: vLLM's default for serving on datacentre devices, named in the commands. It
sets the activations' peak and what a sliding window costs on top of itself."""

PLAN_BASE_RESERVE = 2 * 2**30
"""Bytes per device for driver context, captured graphs and allocator slack. An estimate: aiconfigurator
assumes 3.5 GB for these and its own errors together."""

PLAN_COMMUNICATION_RESERVE = 400_000_000
"""Bytes per device for the collectives' buffers once there is more than one device; aiconfigurator measured
342 to 392 MB for NCCL."""

PLAN_LOAD_OVERHEAD = 0.09
"""Share by which loaded weights may exceed the checkpoint's: vLLM reported 8.7 % more on gpt-oss. What only
fits without it is `tight`."""

PLAN_MIN_CONTEXT = 8192
"""Tokens (or the model's own maximum, if less) that one sequence must hold before a configuration counts at
all."""

PLAN_KV_BLOCK = 16
"""Tokens of one KV block, vLLM's default: caches come in whole blocks, a sliding window in one more."""

PLAN_VOCABULARY_PADDING = 64
"""Rows to whose multiple vLLM pads embedding and head before it splits them
(`DEFAULT_VOCAB_PADDING_SIZE`)."""

# --- inventory: what `--verify` calls absurd ---------------------------------------------------------------

INVENTORY_MAX_WEIGHT = 1e4
"""Largest magnitude of a stored weight beyond which it is told. A choice: SmolLM2-135M's largest is 9.25
(measured); norms of larger models reach hundreds. An fp16 activation overflows at 65504, which such a weight
reaches from an input of seven; bytes read in the wrong dtype or order give magnitudes up to 1e38."""

KIND_SHARE = 0.25
"""Share of a worker's memory that the weights of one node may take when a kind is made up to be compiled:
the compiler's and the runtime's own copies come on top (one packed, one transposed), and so do the
interpreter and its libraries. Larger nodes get fewer experts or a smaller vocabulary."""

KIND_SHARE_MOST = 0.45
"""The same where fewer experts are not to be had: one copy still fits beside the weights themselves. What is
larger is compiled by the minimal run, from the checkpoint, one node at a time."""

SWEEP_LENGTH = 4096
"""Longest sequence of the sweep over lengths: one beyond a larger window (some models have 32,768) would take
minutes a node on a processor."""
