"""What a person has to know of the features that images came to."""

from __future__ import annotations

from ...finding import Finding, Subject, make_finding
from ..record_parts import ImageFeatures


def image_findings(images: ImageFeatures | None, target: str) -> list[Finding]:
    """One finding for the first images whose features are off; nodes have findings of their own."""
    off = [result for result in images.results if result.state == "fail"] if images is not None else []
    if not off:
        return []
    first = off[0]
    said = f"The features of {first.name} ({first.shown}) on {target} are off: {first.reason}."
    return [make_finding("NUM033", Subject(kind="metric", name=f"{first.name}.features"), said)]
