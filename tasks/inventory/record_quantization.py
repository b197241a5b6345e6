"""What inventory hands on about quantisation: one normal form, whatever the dialect, and what was checked."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Value


class Activations(Value):
    """How activations are quantised before a matrix product.

    Attributes:
        bits: of one activation.
        dtype: short name, e.g. `fp8_e4m3`, `int8`; empty where it is not said.
        dynamic: scales computed at run time (True) or stored (False); None where it is not said.
        group: elements that share a scale along the row; 0 for one a token or tensor.
    """

    bits: int = 0
    dtype: str = ""
    dynamic: bool | None = None
    group: int = 0


class KvCache(Value):
    """How the KV cache is quantised.

    Attributes:
        dtype: short name, e.g. `fp8_e4m3`, `int8`.
        scheme: the word or the parameters as declared.
        declared: files and pointers that declare it.
        scales: stored k and v scales; 0 means that a stack takes 1.0 or measures its own.
    """

    dtype: str
    scheme: str
    declared: Sequence[str] = ()
    scales: int = 0


class QuantizationPart(Value):
    """Modules that are quantised alike, where a release mixes schemes.

    Attributes:
        scheme: word of the design's vocabulary.
        bits: of a weight.
        group: block size, an integer or [rows, columns]; 0 for none.
        targets: module patterns or class names as declared; empty where only the tensors show the part.
        modules: modules of the release that it holds for; 0 where none was counted.
        activations: of this part; None for weights only or where it is not said.
        dtype: of a weight where the declaration names its number format, e.g. `nf4`, `fp8_e5m2`.
    """

    scheme: str
    bits: int = 0
    group: int | Sequence[int] = 0
    targets: Sequence[str] = ()
    modules: int = 0
    activations: Activations | None = None
    dtype: str = ""


class Exclusion(Value):
    """One declared exclusion, read as the engine of its dialect reads it.

    Attributes:
        pattern: as declared.
        kind: `exact`, `prefix`, `substring`, `glob`, `regex`, `class`, `transformers` (the start by a
            regular expression, or the end), or `refused` where it is no pattern that can be evaluated.
        source: file and JSON pointer.
        modules: modules of the release that it matches; -1 where it was not evaluated.
        quantized: of those, stored in low precision nevertheless.
    """

    pattern: str
    kind: str
    source: str
    modules: int = -1
    quantized: int = 0


class QuantizationSource(Value):
    """One place that declares a quantisation, in the normal form by itself.

    Attributes:
        source: file and JSON pointer, e.g. `config.json#/text_config/quantization_config`.
        dialect: the method's own word.
        scheme: what it comes to; empty where the dialect is unknown.
        bits: of a weight.
        group: block size.
        kv_cache: dtype of the KV cache; empty where it declares none.
    """

    source: str
    dialect: str
    scheme: str
    bits: int = 0
    group: int | Sequence[int] = 0
    kv_cache: str = ""


class QuantizationChecks(Value):
    """What was held against the tensors; every number counts tensors.

    Attributes:
        weights: low-precision weights that need a scale.
        with_scale: of those, with every side tensor that they need, each of the right shape.
        without_scale: of those, without a scale.
        wrong_shape: of those, with a scale whose shape does not belong to the weight.
        orphans: scales whose weight is gone or stored in plain precision.
        excluded_plain: weights that an exclusion names and that are plain, as they should be.
        excluded_quantized: weights that an exclusion names and that are in low precision all the same.
        targeted_plain: weights that no exclusion names and that are plain.
        awaited: low-precision weights of which a side tensor lies in a file that is not here.
    """

    weights: int = 0
    with_scale: int = 0
    without_scale: int = 0
    wrong_shape: int = 0
    orphans: int = 0
    excluded_plain: int = 0
    excluded_quantized: int = 0
    targeted_plain: int = 0
    awaited: int = 0


class Quantization(Value):
    """The quantisation in one normal form.

    Attributes:
        scheme: word of the design's vocabulary, `none` where weights are plain.
        bits: of the low-precision weights; 0 for none, or where parts differ.
        group: block size, an integer or [rows, columns]; 0 for none.
        excluded: module patterns left in high precision, as declared.
        dialect: the method's own word; empty where only the tensors show it.
        activations: None for weights only or where it is not said.
        symmetric: whether zero is in the middle; None where it is not said.
        zero_points: whether zero points are stored; None where there are no low-precision weights.
        kv_cache: None where nothing declares it.
        parts: of a mixed release, each with its own scheme.
        exclusions: each of `excluded` with how it is read and what it matches.
        sources: every place that declares a quantisation.
        checks: what was held against the tensors.
        raw: section that is not understood, as JSON text, cut to a readable length.
    """

    scheme: str = "none"
    bits: int = 0
    group: int | Sequence[int] = 0
    excluded: Sequence[str] = ()
    dialect: str = ""
    activations: Activations | None = None
    symmetric: bool | None = None
    zero_points: bool | None = None
    kv_cache: KvCache | None = None
    parts: Sequence[QuantizationPart] = ()
    exclusions: Sequence[Exclusion] = ()
    sources: Sequence[QuantizationSource] = ()
    checks: QuantizationChecks = QuantizationChecks()
    raw: str = ""
