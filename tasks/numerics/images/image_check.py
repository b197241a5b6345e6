"""Whether the reference's features of an image are right: held against stock transformers' own reading.

Reference and target share the reading of the checkpoint, also of a tower that no prompt of text reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.values import digest, json_number
from day0.adapters.models.image_features import feature_tensors
from day0.adapters.models.stock_features import StockFeatures, stock_features

from ... import thresholds
from ..prompts.passes import MAIN
from ..question import Question
from ..record_parts import ReferenceCheck
from ..trust.positions import compare_positions
from ..walk.case import Case
from ..walk.forwards import REFERENCE
from ..walk.lockstep import Comparison
from ..walk.unit_keys import start_key
from ..walk.units import Unit, load_unit, save_unit


def check_images(question: Question, case: Case, walked: Comparison) -> ReferenceCheck:
    """The check, from the store where it was made before; raises nothing.

    Args:
        question: whose release stock transformers reads.
        case: on images.
        walked: what it came to.
    """
    output = walked.outputs.get(MAIN, {}).get(REFERENCE)
    if output is None:
        return ReferenceCheck(detail="its features were not reached")
    release = question.release
    key = digest(
        {
            "images": start_key(case, ()),
            "check": [release.config_digest, release.weights_digest, question.memory],
        }
    )
    unit = load_unit(case.store, key)
    if unit is None:
        ours = [tensor.float() for tensor in feature_tensors(output) if tensor.is_floating_point()]
        check = _checked(question, release, case.skeleton, ours, case)
        unit = Unit({}, {"check": check.model_dump(mode="json")})
        save_unit(case.store, key, unit)
    return ReferenceCheck.model_validate(unit.facts["check"])


def _checked(
    question: Question, release: Release, skeleton: Skeleton, ours: Sequence[Tensor], case: Case
) -> ReferenceCheck:
    given = case.passes[0].given
    assert given is not None, "a case on images has arguments"
    stock = stock_features(release, skeleton, given, question.memory, progress=question.progress)
    return against_stock(ours, stock)


def against_stock(ours: Sequence[Tensor], stock: StockFeatures) -> ReferenceCheck:
    """Our features against stock's, row by row; the value is the largest relative L2 of a row.

    Args:
        ours: fp32, in their order.
        stock: what `from_pretrained` gave.
    """
    if stock.features is None:
        return ReferenceCheck(detail=f"{stock.name} was not run on the image: {stock.reason}")
    limit = thresholds.REFERENCE_AGREES
    shapes = [[list(tensor.shape) for tensor in side] for side in (ours, stock.features)]
    if shapes[0] != shapes[1]:
        said = f"{stock.name} gives features of the shapes {shapes[1]}, the reference {shapes[0]}"
        return _check("fail", said, float("inf"), limit)
    found = [
        compare_positions(one.reshape(-1, one.shape[-1]), other.reshape(-1, other.shape[-1]))
        for one, other in zip(ours, stock.features, strict=True)
    ]
    errors = [error for part in found for error in part.errors]
    value, unknown = max(errors, default=0.0), sum(part.unknown for part in found)
    if value > limit:
        said = (
            f"its features of an image differ by {value:.2g} from those of {stock.name} (limit {limit:.0e})"
        )
        return _check("fail", said, value, limit)
    if unknown:
        said = (
            f"{unknown} of {len(errors)} rows of features are not finite, neither its own nor those of "
            f"{stock.name}"
        )
        return _check("unverified", said, float("nan"), limit)
    said = f"{len(errors)} rows of features are within {value:.2g} of {stock.name} (limit {limit:.0e})"
    return _check("pass", said, value, limit)


def _check(state: str, said: str, value: float, limit: float) -> ReferenceCheck:
    return ReferenceCheck(
        state=state,
        method="from_pretrained",
        decided_by="from_pretrained",
        detail=said,
        value=json_number(value),
        limit=json_number(limit),
    )
