"""One thing that differs between two runs."""

from __future__ import annotations

from typing import Any, Literal

from day0.adapters.base.values import Value

ChangeKind = Literal[
    "model", "revision", "target", "verdict", "finding", "version", "fact", "node", "metric", "signature"
]


class Change(Value):
    """One thing that differs.

    Attributes:
        kind: what sort of thing.
        target: whose; empty for what all targets share.
        stage: in which stage's record; empty where none.
        subject: JSON pointer of a fact, or the name of a finding, package or node.
        before: earlier value; None where there was none.
        after: later value; None where it is gone.
        worse: True or False where one can say, else None.
        fails: whether by this alone the later run fails where the earlier did not.
        text: one line for a person.
    """

    kind: ChangeKind
    target: str = ""
    stage: str = ""
    subject: str
    before: Any = None
    after: Any = None
    worse: bool | None = None
    fails: bool = False
    text: str
