"""Which tensors a config implies, under the names that its published checkpoint gives them.

A transformers model is built on the meta device and its parameters are taken back through the conversions
that loading would apply (`revert_weight_conversion` of `transformers/core_model_loading.py`, without its
renamings: fused experts come apart, names stay the model's own). Names of a checkpoint are brought into the
same space by the renamings of loading; so both meet whatever dialect the checkpoint was written in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..base.dtypes import FROM_TORCH

_DIGITS = re.compile(r"(?<=\.)\d+(?=\.|$)")


class ExpectedTensor(NamedTuple):
    """One tensor that the config implies.

    Attributes:
        name: in the model's own names, experts apart.
        published: as a checkpoint of this model type would call it.
        dtype: short name, without quantisation.
        shape: rows first.
        flags: letters: `c` made by a conversion (its axes may stand otherwise), `l` weight of a linear module
            or of experts, `o` may be absent (tied, or its class says so).
    """

    name: str
    published: str
    dtype: str
    shape: tuple[int, ...]
    flags: str


@dataclass(frozen=True)
class Expected:
    """What a config implies.

    Attributes:
        tensors: all of them, in natural order.
        tied: parameter -> parameter whose tensor it shares.
        names: checkpoint name -> the model's own, for the names that were asked about.
        ignored: of these names those which the class says it leaves alone.
    """

    tensors: Sequence[ExpectedTensor]
    tied: Mapping[str, str]
    names: Mapping[str, str]
    ignored: Sequence[str]


def expected_tensors(model: Any, asked: Iterable[str] = ()) -> Expected:
    """The tensors that loading this model asks a checkpoint for.

    Args:
        model: transformers model on the meta device.
        asked: names of a checkpoint, to be told by the model's own names.
    """
    from transformers.core_model_loading import dot_natural_key

    wanted: dict[str, Any] = model.state_dict()
    tied = {key: value for key, value in model.all_tied_weights_keys.items() if key in wanted}
    linear = _linear_weights(model)
    optional = _matcher(getattr(model, "_keys_to_ignore_on_load_missing", None))
    parts = _taken_apart(model, {key: value for key, value in wanted.items() if key not in tied}, linear)
    own = {name: part for name, part in sorted(parts.items(), key=lambda item: dot_natural_key(item[0]))}
    dialect = _Dialect(model, own)
    tensors = [
        ExpectedTensor(
            name,
            dialect.published(name),
            FROM_TORCH.get(str(value.dtype).removeprefix("torch."), str(value.dtype)),
            tuple(value.shape),
            flags + ("o" if optional(name) else ""),
        )
        for name, (value, flags) in own.items()
    ]
    ignored = _matcher(getattr(model, "_keys_to_ignore_on_load_unexpected", None))
    names = {name: dialect.own(name) for name in asked}
    left = [name for name, inner in names.items() if ignored(name) or ignored(inner)]
    return Expected(tensors, tied, names, left)


def _taken_apart(model: Any, wanted: Mapping[str, Any], linear: frozenset[str]) -> dict[str, tuple[Any, str]]:
    """Name -> meta tensor and flags, every conversion of loading undone."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, apply_converters, dot_natural_key

    rules = get_model_conversion_mapping(model, add_legacy=False)[::-1]
    converters = [rule.reverse_transform() for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    found: dict[str, tuple[Any, str]] = {}
    running: dict[str, tuple[Any, list[str]]] = {}
    for key in sorted(wanted, key=dot_natural_key):
        renamed, pattern = apply_converters(key, converters)
        if pattern is None:
            found[key] = (wanted[key], "l" if key in linear else "")
            continue
        converter, keys = running.setdefault(renamed, (deepcopy(by_pattern[pattern]), []))
        converter.add_tensor(renamed, key, pattern, wanted[key])
        keys.append(key)
    for renamed, (converter, keys) in running.items():
        flags = "cl" if any(key in linear for key in keys) else "c"
        for name, value in converter.convert(renamed, model=model, config=model.config).items():
            found[name] = (value[0] if isinstance(value, list) else value, flags)
    return found


def _linear_weights(model: Any) -> frozenset[str]:
    """Parameters that matrix products take: weights of linear modules and stacked ones of experts."""
    import torch

    found = []
    for path, module in model.named_modules():
        for name, value in module.named_parameters(recurse=False):
            stacked = value.dim() == 3 and "expert" in path
            if stacked or (isinstance(module, torch.nn.Linear) and name == "weight"):
                found.append(f"{path}.{name}" if path else name)
    return frozenset(found)


class _Dialect:
    """Renames between a checkpoint and the model.

    Args:
        model: on the meta device.
        own: the model's names, experts apart.
    """

    def __init__(self, model: Any, own: Mapping[str, Any]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import PrefixChange, WeightRenaming

        self._own = own
        self._prefix = model.base_model_prefix
        self._forward = [
            rule for rule in get_model_conversion_mapping(model) if isinstance(rule, WeightRenaming)
        ]
        self._back = [
            rule.reverse_transform()
            for rule in get_model_conversion_mapping(model, add_legacy=False)[::-1]
            if isinstance(rule, WeightRenaming) and not isinstance(rule, PrefixChange)
        ]
        self._known: dict[str, str] = {}

    def own(self, name: str) -> str:
        """The model's own name for a checkpoint's."""
        from transformers.core_model_loading import rename_source_key

        renamed, _ = rename_source_key(name, self._forward, [], self._prefix, self._own)
        return name if renamed not in self._own and name in self._own else str(renamed)

    def published(self, name: str) -> str:
        """The checkpoint's name for the model's own: the one that loading leads back to it."""
        indices = _DIGITS.findall(name)
        text = _DIGITS.sub("#", name)
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _DIGITS.sub("#", self._turned_back(name))
        if known.count("#") != len(indices):
            return self._turned_back(name)
        for index in indices:
            known = known.replace("#", index, 1)
        return known

    def _turned_back(self, name: str) -> str:
        """A reversed renaming may reach further than the one it reverses; such a one is left out.

        Of one part of a composite model only the renamings of whole paths are meant: `blocks` for `layers`
        of a vision tower reads as if it were meant for the text model too.
        """
        from transformers.core_model_loading import apply_renamings

        narrow = [rule for rule in self._back if any("." in text for text in rule.source_patterns)]
        choices = [narrow] if "language_model" in name else []
        choices += [self._back, *([rule for rule in self._back if rule is not one] for one in self._back)]
        for rules in choices:
            turned = str(apply_renamings(name, rules))
            if self.own(turned) == name:
                return turned
        return name


def _matcher(patterns: Any) -> Any:
    """Whether a name is one of those that a class says may be missing or left over."""
    compiled = [re.compile(pattern) for pattern in sorted(patterns or ())]
    return lambda name: any(pattern.search(name) for pattern in compiled)
