"""Images: what vision tower and projector come to on the target's own stream, picture by picture."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import NumericsFacts
from day0.tasks.numerics.record_parts import ImageFeatures

from ..words import listed, number_text, plural, sentence
from .depth_axes import image_nodes
from .ledger import Ledger
from .numerics_nodes import metric_cell
from .parts import Cell, Column, Group, Row, Table, settle

_MEASURES = (
    ("rel_l2", "number", "Relative L2", "Features on the target's own stream against the reference's."),
    ("cosine", "gap", "1 - cosine", "Of the same."),
    (
        "ratio",
        "number",
        "Over noise",
        "Relative L2 over what rounding alone adds up to in tower and projector.",
    ),
    ("token_ratio", "number", "Typical row", "The same of the median row; this is judged, too."),
    ("worst_ratio", "number", "Worst row", "The same of the worst row; shown, not judged."),
)


def judged(facts: NumericsFacts) -> tuple[str, str]:
    """Verdict word and what there is to say of images; empty where the model takes none."""
    images = facts.images
    if images is None:
        return "pass", ""
    return _look(images.state), _lead(images, image_nodes(facts.blocks))


def images_group(ledger: Ledger, facts: NumericsFacts, slug: str) -> Group | None:
    """The features of each picture; None where the model takes no images."""
    look, told = judged(facts)
    if facts.images is None:
        return None
    rows = [_row(ledger, facts.images, place) for place in range(len(facts.images.results))]
    return Group(
        id=f"numerics--{slug}--images",
        title="Images",
        lead=told,
        look=look,
        tables=[settle(_table(slug, rows))] if rows else (),
    )


def _lead(images: ImageFeatures, nodes: int) -> str:
    if images.reason:
        return f"Vision tower and projector were not compared: {images.reason}."
    off = [result for result in images.results if result.state == "fail"]
    open_ = [result for result in images.results if result.state == "unverified"]
    compared = f"{plural(nodes, 'node')} of vision tower and projector stand among the nodes compared"
    if off:
        told = f"the features of {listed([result.name for result in off])} are off: {off[0].reason}"
    elif not open_:
        told = "the features that the text takes in are as near to the reference's as rounding allows"
    else:
        told = f"of {listed([result.name for result in open_])} nothing is known: {open_[0].reason}"
    check = images.reference_check
    word = {"pass": "The reference's own features were checked", "fail": "The reference's own are wrong"}
    checked = f"{word.get(check.state, 'Nothing shows that the reference is right here')}: {check.detail}"
    return f"{sentence(compared)} {sentence(told)}" + (f" {sentence(checked)}" if check.detail else "")


def _row(ledger: Ledger, images: ImageFeatures, place: int) -> Row:
    result, base = images.results[place], f"/images/results/{place}"
    look = _look(result.state)
    name = Cell(result.name, status=look, below=result.reason or result.purpose)
    measures = [
        metric_cell(ledger, result.metrics, f"{base}/metrics", measure, form)
        for measure, form, *_ in _MEASURES
    ]
    return Row([name, Cell(result.shown), ledger.cell(f"{base}/tokens", "exact"), *measures], status=look)


def _look(state: str) -> str:
    """A word of a record is no more than text; what it cannot say is undecided."""
    return state if state in ("pass", "fail") else "unverified"


def _table(slug: str, rows: Sequence[Row]) -> Table:
    return Table(
        id=f"numerics--{slug}--pictures",
        caption="Features of images, on the target's own stream",
        columns=[
            Column("Images"),
            Column("Size"),
            Column("Rows", True, "Rows of features, most of which take the place of tokens."),
            *(Column(title, True, told) for *_, title, told in _MEASURES),
        ],
        rows=rows,
    )


def line(facts: NumericsFacts) -> str:
    """What there is to say of images on a terminal, in one line; empty where the model takes none."""
    told = judged(facts)[1]
    known = [
        f"{result.name} {number_text(result.metrics.rel_l2)} off, "
        f"{number_text(result.metrics.ratio)} times the noise"
        for result in (facts.images.results if facts.images else ())
        if result.metrics is not None
    ]
    return f"{told} Features: {listed(known)}." if known else told
