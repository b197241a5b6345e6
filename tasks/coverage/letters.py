"""A text about one gap, ready to send to whoever keeps the layer at fault."""

from __future__ import annotations

from collections.abc import Mapping

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint

from .record import Gap

_SAID = {
    "missing": "is not there for this call",
    "wrong": "gives values that its dtype does not explain",
    "crash": "ends the process",
    "hang": "never returns",
    "fallback": "runs on the host instead of the device",
    "double_fault": "falls back to the host, which has no kernel for it either",
    "slow": "takes far longer than the bytes that it moves explain",
    "decomposed": "is not there; torch's decomposition into other operators works",
    "unknown": "has not been tried",
}


def letter(
    gap: Gap, call: OperatorCall, spec: TargetSpec, fingerprint: Fingerprint, model: Mapping[str, str]
) -> str:
    """The text: what was called, what happened, on which versions, how to see it again, what it costs.

    Args:
        gap: what it is about.
        call: the one that showed it.
        spec: the target.
        fingerprint: of the target.
        model: `type` and `phases`, what calls it and when; `inputs`, what the call was given.
    """
    shapes = ", ".join(f"{dtype}{list(shape)}" for dtype, shape in zip(call.dtypes, call.shapes, strict=True))
    attributes = ", ".join(f"{name}={value!r}" for name, value in sorted(call.attributes.items()))
    versions = ", ".join(f"{name} {value}" for name, value in sorted(fingerprint.exact.items()))
    lines = [
        f"To: {gap.owner or f'the owner of {spec.stack}@{spec.device}'}",
        f"Subject: {gap.op} {_SAID.get(gap.status, gap.status)} ({', '.join(gap.dtypes) or 'no tensors'})",
        "",
        f"On {spec.stack}@{spec.device}, {gap.op} {_SAID.get(gap.status, gap.status)}.",
        "",
        f"Call: {gap.op}({shapes or 'no tensors'})" + (f" with {attributes}" if attributes else ""),
        f"Inputs: {model['inputs']}",
        f"Seen: {gap.evidence}",
        f"Layer: {gap.layer or 'not known'}",
        f"Versions: {fingerprint.family}; {versions}",
        f"Called by: models of type {model['type']}, in {model['phases']}",
        f"Share: {gap.impact:.1%} of the work of one token",
    ]
    if gap.bytes_per_call:
        lines.append(f"Crosses between device and host: {gap.bytes_per_call} bytes a call")
    if gap.workaround:
        tried = f" ({gap.checked})" if gap.checked else ""
        lines.append(f"Meanwhile: {gap.workaround}{tried}")
    if gap.repro:
        lines += [
            "",
            "A script that shows it alone, with its inputs inside:",
            "",
            "```python",
            gap.repro,
            "```",
        ]
    return "\n".join(lines) + "\n"
