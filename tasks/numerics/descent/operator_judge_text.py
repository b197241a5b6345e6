"""How a script of numerics judges an operator: by the rounding that its dtype explains, as nodes are."""

from __future__ import annotations

from ... import thresholds

_TEXT = '''def relative(got, due):
    below = float(due.norm())
    return float((got - due).norm()) / below if below else float((got - due).abs().max())


def rows(value):
    return value.reshape(-1, value.shape[-1]) if value.dim() else value.reshape(1, 1)


def disagreement(outputs, right, own):
    """The error in units of the rounding that the dtype explains: the CPU's own, and at least one ULP."""
    like = right if own is None else own
    if len(outputs) != len(like):
        return f"{len(outputs)} outputs where {len(like)} are due"
    for got, due, form in zip(outputs, right, like):
        if got.shape != form.shape:
            return f"{list(got.shape)} where {list(form.shape)} is due"
        if not got.is_floating_point():
            wrong = int((got != form.to(got.dtype)).sum())
            if wrong:
                return f"{wrong} of {got.numel()} values differ"
            continue
        if not got.numel():
            continue
        got, due, form = got.double(), due.double(), form.double()
        if bool((torch.isfinite(due) & ~torch.isfinite(got)).any()):
            return "values that are not finite"
        got, due, form = (torch.where(torch.isfinite(due), one, 0.0) for one in (got, due, form))
        ulp = torch.finfo(like[0].dtype if like[0].is_floating_point() else torch.float32).eps
        whole = relative(got, due) / max(relative(form, due), ulp)
        pairs = list(zip(rows(got), rows(due), rows(form)))
        worst = max(relative(g, d) / max(relative(f, d), ulp) for g, d, f in pairs)
        gains = [float((g * d).sum() / (d * d).sum()) - 1 for g, d, f in pairs if float(d.norm())]
        noises = [float((f * d).sum() / (d * d).sum()) - 1 for g, d, f in pairs if float(d.norm())]
        spread = max(float(torch.tensor(noises).std()) if len(noises) > 1 else 0.0, ulp / 4)
        score = abs(sum(gains) - sum(noises)) / len(gains) ** 0.5 / spread if gains else 0.0
        print("error", whole, "times the noise, worst row", worst, ", mean gain", score, "standard errors")
        if whole > @RATIO@:
            return f"{whole:.3g} times the rounding noise, @RATIO@ allowed"
        if worst > @WORST@:
            return f"a row is off by {worst:.3g} times the rounding noise, @WORST@ allowed"
        if len(gains) >= @TOKENS@ and score > @SCORE@:
            return f"the mean gain is off by {score:.3g} standard errors, @SCORE@ allowed"
    return ""
'''


def by_noise() -> str:
    """Source of `disagreement(outputs, right, own)` with the tolerances of numerics."""
    parts = {
        "RATIO": thresholds.NUMERICS_RATIO,
        "WORST": thresholds.NUMERICS_WORST_TOKEN,
        "SCORE": thresholds.NUMERICS_GAIN_SCORE,
        "TOKENS": thresholds.NUMERICS_MIN_TOKENS,
    }
    text = _TEXT
    for mark, value in parts.items():
        text = text.replace(f"@{mark}@", f"{value:g}")
    return text
