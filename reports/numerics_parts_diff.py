"""What differs between two comparisons beside the nodes: output, routing, reference check, task, own test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from day0.tasks.numerics.record import NOT_ASKED, Logits, NumericsFacts, PromptResult
from day0.tasks.numerics.record_parts import ImageFeatures, Precision, Routing, SelfTest, TaskMetric, Training

from .change import Change
from .metric_change import beyond_band, exceeds, metric_change
from .self_test import FOUND, MISSED, outcome

_ASKED = {
    "task": "the task",
    "self_test": "the self-test",
    "precision": "the precision sweep",
    "training": "the step of training",
}
PARTS = ("logits", "decode", "images", "routing", "reference_check", "manifest", *_ASKED)
"""Facts that are compared here, and not leaf by leaf."""
_WORST_FIRST = ("fail", "unverified", "pass")


def part_changes(
    target: str, before: NumericsFacts, after: NumericsFacts, *, steady: bool = True
) -> Iterator[Change]:
    """Everything but the nodes; a part that only one of the runs was asked for is told and not judged.

    Args:
        target: whose.
        before: the earlier facts.
        after: the later ones.
        steady: whether two runs of the target are equal to the last bit. Where they are not, shares and
            counts wander, so they are told only where the KL divergence moved too.
    """
    yield from _check(target, before, after)
    yield from _output(target, "logits", before.logits, after.logits, steady)
    if _asked_alike("decode", before, after):
        yield from _output(target, "decode", before.decode, after.decode, steady)
    yield from _images(target, before.images, after.images)
    yield from _routing(target, before.routing, after.routing)
    yield from _captured(target, before, after)
    for part, told in _ASKED.items():
        old, new = getattr(before, part), getattr(after, part)
        if (old is None) != (new is None):
            word = "was not asked for" if new is None else "is new"
            yield _fact(target, f"/{part}", f"{target}: {told} {word}")
    if before.task and after.task:
        yield from _task(target, before.task, after.task, steady)
    if before.self_test and after.self_test:
        yield from _self_test(target, before.self_test, after.self_test)
    if before.precision and after.precision:
        yield from _precision(target, before.precision, after.precision)
    if before.training and after.training:
        yield from _training(target, before.training, after.training)


def _fact(target: str, subject: str, text: str) -> Change:
    return Change(kind="fact", target=target, stage="numerics", subject=subject, text=text)


def _word(
    target: str, subject: str, old: str, new: str, worse: bool | None, *, fails: bool = False
) -> Change:
    """A word that is another one now."""
    return Change(
        kind="node",
        target=target,
        stage="numerics",
        subject=subject,
        before=old,
        after=new,
        worse=worse,
        fails=fails,
        text=f"{target}: {subject} {old or 'none'} -> {new or 'none'}",
    )


def _worse(old: str, new: str) -> bool | None:
    """Whether a verdict word got worse; None where one of them is no verdict."""
    if old not in _WORST_FIRST or new not in _WORST_FIRST:
        return None
    return _WORST_FIRST.index(new) < _WORST_FIRST.index(old)


def _check(target: str, before: NumericsFacts, after: NumericsFacts) -> Iterator[Change]:
    old, new = before.reference_check.state, after.reference_check.state
    if old != new:
        yield _word(target, "reference check", old, new, _worse(old, new), fails=new == "fail")


def _asked_alike(prompt: str, before: NumericsFacts, after: NumericsFacts) -> bool:
    """Whether both runs were asked for it, or neither; what was not asked for is told with the prompts."""
    named = [
        {one.name: one.reason for one in facts.logits.prompts} if facts.logits else {}
        for facts in (before, after)
    ]
    return len({reasons.get(prompt) == NOT_ASKED for reasons in named}) == 1


def _output(target: str, name: str, old: Logits | None, new: Logits | None, steady: bool) -> Iterator[Change]:
    if old is None or new is None:
        if old is not new:
            place = "" if name == "logits" else " with a cache"
            text = f"{target}: agreement at the output{place} is {'gone' if new is None else 'new'}"
            yield Change(kind="node", target=target, stage="numerics", subject=name, text=text)
        return
    yield from _agreement(target, name, old, new, steady)
    earlier = {prompt.name: prompt for prompt in old.prompts}
    for prompt in new.prompts:
        if prompt.name in earlier:
            yield from _prompt(target, f"{name} {prompt.name}", earlier[prompt.name], prompt, steady)
    later = {prompt.name for prompt in new.prompts}
    gone = [(prompt, "is gone") for prompt in earlier if prompt not in later]
    fresh = [(prompt.name, "is new") for prompt in new.prompts if prompt.name not in earlier]
    for named, told in (*gone, *fresh):
        yield _fact(target, f"/{name}/prompts", f"{target}: prompt {named} {told}")


def _prompt(
    target: str, subject: str, old: PromptResult, new: PromptResult, steady: bool
) -> Iterator[Change]:
    if bool(old.reason) != bool(new.reason):
        told = f"does not run any more: {new.reason}" if new.reason else "runs now"
        yield _fact(target, f"/prompts/{subject}", f"{target}: {subject} {told}")
        return
    if not old.reason:
        yield from _agreement(target, subject, old, new, steady)
    if old.worst_block != new.worst_block:
        worse = bool(new.worst_block) if not (old.worst_block and new.worst_block) else None
        fails = bool(new.worst_block) and not old.worst_block
        yield _word(target, f"{subject} worst node", old.worst_block, new.worst_block, worse, fails=fails)


def _agreement(
    target: str, subject: str, old: Logits | PromptResult, new: Logits | PromptResult, steady: bool
) -> Iterator[Change]:
    if not steady and not beyond_band(old.kl, new.kl):
        return
    for metric, more_is_worse in (("top1", False), ("top5", False), ("kl", True), ("decisive", True)):
        earlier, later = getattr(old, metric), getattr(new, metric)
        moved = beyond_band(earlier, later) if metric == "kl" else earlier != later
        if moved:
            worse = exceeds(later, earlier) == more_is_worse or str(later) == "NaN"
            yield metric_change(target, subject, metric, earlier, later, worse=worse)


def _images(target: str, before: ImageFeatures | None, after: ImageFeatures | None) -> Iterator[Change]:
    earlier = {result.name: result for result in (before.results if before else ())}
    later = {result.name: result for result in (after.results if after else ())}
    for name in dict.fromkeys([*earlier, *later]):
        old, new = earlier.get(name), later.get(name)
        if old is None or new is None:
            yield _fact(target, "/images", f"{target}: {name} {'is new' if old is None else 'is gone'}")
        elif old.state != new.state:
            worse = _worse(old.state, new.state)
            yield _word(target, f"features of {name}", old.state, new.state, worse, fails=new.state == "fail")


def _routing(target: str, before: Sequence[Routing], after: Sequence[Routing]) -> Iterator[Change]:
    """Unexplained flips; near-ties are chance, and what they do to the output the nodes show."""
    earlier = {router.name: router for router in before}
    for router in after:
        old = earlier.get(router.name)
        if old is not None and old.unexplained != router.unexplained:
            worse = router.unexplained > old.unexplained
            yield metric_change(
                target, router.name, "unexplained flips", old.unexplained, router.unexplained, worse=worse
            )


def _captured(target: str, before: NumericsFacts, after: NumericsFacts) -> Iterator[Change]:
    old, new = (facts.manifest.expected - facts.manifest.seen for facts in (before, after))
    if old != new:
        yield metric_change(target, "calls", "not captured", old, new, worse=new > old)


def _task(target: str, before: TaskMetric, after: TaskMetric, steady: bool) -> Iterator[Change]:
    if (before.name, before.items) != (after.name, after.items):
        told = f"{before.name or 'none'} of {before.items} -> {after.name or 'none'} of {after.items} items"
        yield _fact(target, "/task", f"{target}: the task is another: {told}")
    elif str(before.target) != str(after.target) and (steady or float(after.high) < 0 <= float(before.high)):
        worse = float(after.target) < float(before.target)
        yield metric_change(target, f"task {after.name}", "target", before.target, after.target, worse=worse)


def _self_test(target: str, before: SelfTest, after: SelfTest) -> Iterator[Change]:
    """A bug is known by its name and by where it was put."""
    earlier = {(bug.bug, bug.where): outcome(bug) for bug in before.matrix}
    for bug in after.matrix:
        old, new = earlier.get((bug.bug, bug.where)), outcome(bug)
        if old is not None and old != new:
            worse = True if new == MISSED or old == FOUND else False if new == FOUND else None
            yield _word(target, f"bug {bug.bug}", old, new, worse, fails=new == MISSED)
    if before.observer != after.observer and None not in (before.observer, after.observer):
        words: Mapping[bool | None, str] = {True: "harmless", False: "changes the result"}
        old, new = words[before.observer], words[after.observer]
        yield _word(target, "capturing", old, new, not after.observer, fails=not after.observer)


def _precision(target: str, before: Precision, after: Precision) -> Iterator[Change]:
    for role in dict.fromkeys([*before.policy, *after.policy]):
        old, new = before.policy.get(role, ""), after.policy.get(role, "")
        if old != new:
            yield _word(target, f"precision of {role}", old, new, None)


def _training(target: str, before: Training, after: Training) -> Iterator[Change]:
    earlier = {block.name: block.verdict for block in before.blocks}
    for block in after.blocks:
        old, new = earlier.get(block.name, block.verdict), block.verdict
        if old != new:
            yield _word(target, f"training {block.name}", old, new, _worse(old, new), fails=new == "fail")
    if bool(before.reason) != bool(after.reason):
        told = f"did not run: {after.reason}" if after.reason else "ran"
        yield _fact(target, "/training/reason", f"{target}: the step of training {told}")
