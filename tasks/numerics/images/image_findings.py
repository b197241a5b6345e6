"""What a person has to know of the features that images came to."""

from __future__ import annotations

from ...finding import Finding, Subject, make_finding
from ..record_parts import ImageFeatures


def image_findings(images: ImageFeatures | None, target: str, model: str) -> list[Finding]:
    """What is wrong with the features of images; nodes have findings of their own.

    Args:
        images: of the record; None where the model takes none.
        target: its text.
        model: name of the release.
    """
    if images is None:
        return []
    found = []
    if images.reference_check.state == "fail":
        said = f"The reference itself is wrong on images: {images.reference_check.detail}."
        found.append(make_finding("NUM020", Subject(kind="model", name=f"{model}, images"), said))
    off = [result for result in images.results if result.state == "fail"]
    if off:
        first = off[0]
        said = f"The features of {first.name} ({first.shown}) on {target} are off: {first.reason}."
        found.append(make_finding("NUM033", Subject(kind="metric", name=f"{first.name}.features"), said))
    return found
