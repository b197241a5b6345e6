"""The one home of every threshold, each with its reason and source beside it."""

from __future__ import annotations

# --- numerics: what is a fault and what is rounding -----------------------------------------------------------------
# The yardstick is the noise arm: the reference itself in the target's precision, on the same input. So every tolerance
# is a multiple of that arm's distance and follows the target's precision by construction.

NOISE_FLOOR_ULP = 12**-0.5
"""RMS error of rounding to nearest, in ULP (an error uniform over one ULP has variance 1/12). No arm is held to be
better than that, in case the noise arm met numbers that its dtype happens to hold exactly."""

NUMERICS_RATIO = 5.0
"""Relative L2 over the noise arm's, for the whole tensor and for its typical token. Kernels that round elsewhere came
to at most 1.6 on SmolLM2-135M and ten tiny random families; 5 is where msProbe-like practice starts to suspect."""

NUMERICS_WORST_TOKEN = 8.0
"""Worst token's relative L2 over the noise arm's worst. An extreme value of some hundred tokens, so wider than the
ratio: independent roundings came to at most 3."""

NUMERICS_GAIN_SCORE = 12.0
"""Mean token gain over its standard error in the noise arm. Correct targets stayed below 6.1 and an output times 1.01
came to 29 at least, both in bf16 on SmolLM2-135M; 12 is about the geometric mean of the two."""

NUMERICS_GAIN_SHARE = 0.5
"""Share of a typical token's rounding error that a mean gain must reach to count, however many tokens prove it: with
thousands of tokens even the harmless bias of a rounding mode is many standard errors from zero. On SmolLM2-135M in
bf16 correct targets stayed below 0.15, an output times 1.01 stayed above 2."""

NUMERICS_MIN_TOKENS = 8
"""Tokens below which a standard error over tokens says too little; the gain then does not apply."""

NUMERICS_OUTLIER = 8.0
"""Multiple of the noise arm's typical token error beyond which a token of a routed node counts as routed otherwise."""

NUMERICS_OUTLIER_SIGMA = 5.0
NUMERICS_OUTLIER_SPARE = 3
"""Tokens of a routed node that may be outliers: n + 5 sqrt(n + 1) + 3, n of them in the noise arm. Which near-ties flip
is chance, so both counts are about Poisson with the same mean; 2 to 5 % of the tokens flip in each layer of a top-8 of
256 router at bf16's noise (anchors: numerics, section 3)."""

# --- reports: what counts as a change between two runs --------------------------------------------------------------
# Facts are equal for equal inputs, so under one fingerprint any change is one; the band serves comparisons across
# versions, whose kernels round in another order.

METRIC_CHANGE_FACTOR = 1.5
"""A node's distance that moved by more than this factor is told as a change. A convention, wide enough for another
order of summation; a node that moved so far and stays within tolerance is a change, not a regression."""

METRIC_CHANGE_FLOOR = {"rel_l2": 0.0, "gain_score": 6.1, "ratio": 1.0}
"""Below these a measure is rounding noise and may wander: correct targets stayed below a gain score of 6.1, and a
ratio of 1 is the noise arm's own distance (see numerics above)."""

NUMERICS_TOKENS = 192
"""Tokens compared. Enough that an output times 1.01 is 50 standard errors from rounding in bf16 (SmolLM2-135M), few
enough that four passes in bf16 on two cores without bf16 units take some 15 s."""

NUMERICS_DECISIVE_SIGMA = 4.0
"""RMS logit errors that the reference's margin must exceed for a disagreement to count: the difference of two logits
has the standard deviation sqrt(2) RMS errors, so this is nearly three of them."""

NUMERICS_SAY_TOKENS = 8
NUMERICS_SAY_BYTES = 4 * 2**30
"""The reference continues the prompt by eight tokens where reading the weights eight times more is cheap, that is up to
4 GiB of them (about a minute on two cores); beyond, by the one token that the comparison itself gives."""
