"""Which stored numbers a stack must not round: by role, by what they decide, by what was kept in F32."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..finding import Finding, Severity, Subject, make_finding
from .config_facts import ConfigFacts
from .contradictions import plain_dtype
from .counts import Counted
from .readable import plural
from .record_structure import PrecisionNeed
from .seen import Part, Seen

_LOW = ("bf16", "fp16")
_WIDE = ("fp32", "fp64")
_CORRECTION = re.compile(
    r"(^|_)(e_)?score_correction_bias$|^correction_bias$|^expert_bias$|^exp_probs_b$|^gate_bias$"
)
_ROUTER_MODULES = frozenset({"gate", "router", "moe_gate", "wg"})
_STATE = re.compile(r"^(a_log|a_logs|dt_bias|d|ssm_a|ssm_d)$")
_STATE_MODULES = frozenset({"mixer", "mamba", "mamba2", "ssm", "linear_attn", "kda", "delta_net", "gdn",
                            "attn", "self_attn", "temporal_block"})  # fmt: skip

_BIAS = (
    "it chooses the experts: rounded to bf16 it changes the chosen eight of 98.5% of tokens "
    "(sglang issue 37133)"
)
_RATES = "decay rates and skips of a recurrent state: their rounding adds up over the sequence"
_ROTARY = "frequencies of positions: rounded ones turn far positions by the wrong angle"
_SCALES = "scales multiply whole blocks of weights: their rounding is that of every weight"
_EXPONENTS = (
    "scales that are bare exponents of two: any other reading of the byte is off by orders of magnitude"
)
_ROUTER = "routing weights that the publisher kept in F32: rounding changes which experts are chosen"
_NORMS = "norms that the publisher kept in F32"
_KEPT = "kept in F32 by the publisher beside weights of lower precision"


@dataclass(frozen=True)
class _Rule:
    """What one tensor needs.

    Attributes:
        need: dtype.
        reason: what goes wrong otherwise.
        severity: of the finding where less is stored: None for the catalogue's.
    """

    need: str
    reason: str
    severity: Severity | None = "info"


def read_precision(seen: Seen) -> Part:
    """The part of the inventory that says what must keep its precision."""
    main = plain_dtype(seen.counted)
    rows: dict[tuple[str, str, str], list[tuple[int, _Rule]]] = {}
    for item in seen.counted:
        rule = _rule(item, seen.facts, main)
        if rule is not None:
            key = (item.group.pattern.text, item.place.role, item.group.dtype)
            rows.setdefault(key, []).append((item.group.count, rule))
    needs = [
        PrecisionNeed(
            pattern=pattern,
            role=role,
            stored=stored,
            need=found[0][1].need,
            tensors=sum(count for count, _ in found),
            reason=found[0][1].reason,
        )
        for (pattern, role, stored), found in rows.items()
    ]
    severities = {key: found[0][1].severity for key, found in rows.items()}
    findings = [
        _too_little(need, severities[need.pattern, need.role, need.stored]) for need in needs if _lacks(need)
    ]
    return Part(
        {"precision": tuple(needs)}, [*findings, *_must_stay(needs)], {"/precision": "computed:headers"}
    )


def _lacks(need: PrecisionNeed) -> bool:
    return need.need == "fp32" and need.stored not in _WIDE


def _rule(item: Counted, facts: ConfigFacts, main: str) -> _Rule | None:
    segments = tuple(segment.lower() for segment in item.group.pattern.segments)
    name, stored, role = segments[-1], item.group.dtype, item.place.role
    module = segments[-2] if len(segments) > 1 else ""
    floating = stored in (*_LOW, *_WIDE)
    if item.place.part in ("vision", "audio", "projector"):
        return None
    if role == "aux":
        return _scale_rule(stored, name)
    if not floating:
        return None
    if _CORRECTION.search(name) or (name == "bias" and module in _ROUTER_MODULES and _corrects(facts)):
        return _Rule("fp32", _BIAS, None)
    if name == "inv_freq":
        return _Rule("fp32", _ROTARY)
    if _STATE.search(name) and _STATE_MODULES & set(segments):
        return _Rule("fp32", _RATES)
    if stored == "fp32" and main in _LOW and role != "buffer":
        return _Rule("fp32", {"router": _ROUTER, "norm": _NORMS}.get(role, _KEPT))
    return None


def _scale_rule(stored: str, name: str) -> _Rule | None:
    if stored == "e8m0":
        return _Rule("e8m0", _EXPONENTS)
    return _Rule("fp32", _SCALES) if stored == "fp32" and "scale" in name else None


def _corrects(facts: ConfigFacts) -> bool:
    """Whether the router's bias corrects the choice, as in DeepSeek-V3's own code, and is no summand."""
    return facts.text.get("topk_method") == "noaux_tc" or "sqrtsoftplus" in (
        facts.text.get("score_func"),
        facts.text.get("scoring_func"),
    )


def _too_little(need: PrecisionNeed, severity: Severity | None) -> Finding:
    held = f"is stored in {need.stored} ({plural(need.tensors, 'tensor')}) and needs {need.need}"
    message = f"{need.pattern} {held}: {need.reason}"
    subject = Subject(kind="tensor", name=need.pattern)
    return make_finding(
        "INV071",
        subject,
        message,
        evidence=[f"headers of {need.pattern}"],
        severity=severity,
    )


def _must_stay(needs: Sequence[PrecisionNeed]) -> Iterable[Finding]:
    kept = [need for need in needs if need.need == "fp32" and need.stored in _WIDE and need.role != "aux"]
    if kept:
        roles = ", ".join(sorted({need.role for need in kept}))
        number = sum(need.tensors for need in kept)
        patterns = list(dict.fromkeys(need.pattern for need in kept))
        where = plural(len(patterns), "pattern")
        message = f"{plural(number, 'tensor')} in {where} must stay in F32 at run time (roles: {roles}), "
        message += f"e.g. {kept[0].pattern}: {kept[0].reason}"
        yield make_finding(
            "INV072",
            Subject(kind="model", name="precision"),
            message,
            evidence=patterns[:20],
        )
