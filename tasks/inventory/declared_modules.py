"""Which declared scheme holds for a group of tensors: by its own name, by the first rule, else in general."""

from __future__ import annotations

from collections.abc import Sequence

from .declaration import Declaration
from .name_matching import NameMatcher, lookup
from .patterns import Group
from .record_quantization import QuantizationPart

# What may stand before the names that a section within `text_config` uses.
_WRAPPERS = ("language_model.", "model.language_model.", "llm.", "text_model.", "thinker.")
_FORMS = ("_packed", "_blocks", "_qdata")


class DeclaredModules:
    """Looks up what is declared for a module.

    Args:
        declarations: the first that says something of a module holds.
    """

    def __init__(self, declarations: Sequence[Declaration]) -> None:
        self._held = [
            (item, NameMatcher([pattern for pattern, _ in item.rules])) for item in declarations if item.part
        ]

    @property
    def by_name(self) -> bool:
        """Whether single modules are named, so that experts of one layer may differ."""
        return any(item.named or matcher.by_expert for item, matcher in self._held)

    def part_of(self, group: Group) -> QuantizationPart | None:
        """What is declared for the module of a group; None where nothing is, or it is to stay plain."""
        return self.told(group.example)[1]

    def told(self, tensor: str) -> tuple[bool, QuantizationPart | None]:
        """Whether anything is declared for the module of a tensor, and what; None for one left plain."""
        general = None
        for declaration, matcher in self._held:
            if declaration.named or declaration.rules:
                for name in module_names(tensor, nested=declaration.nested):
                    key = lookup(declaration.named, name)
                    if key is not None:
                        return True, declaration.named[key]
                    found = matcher.matched(name)
                    if found:
                        return True, declaration.rules[min(found)][1]
            if general is None and declaration.part is not None and declaration.part.scheme != "none":
                general = declaration.part
        return general is not None, general


def module_names(tensor: str, *, nested: bool) -> Sequence[str]:
    """The names by which a config may call the module of a tensor, the longest first.

    Args:
        tensor: its whole name.
        nested: whether the config stands within that of one part of the model, and names it from there.
    """
    module, _, last = tensor.rpartition(".")
    names = [module]
    if last not in ("weight", "bias", "qweight", "weight_packed"):
        stem = last
        for form in _FORMS:
            stem = stem.removesuffix(form)
        names.insert(0, f"{module}.{stem}")
    if nested:
        for wrapper in _WRAPPERS:
            if module.startswith(wrapper):
                kept = "model." if wrapper == "model.language_model." else ""
                names += [kept + name.removeprefix(wrapper) for name in names]
                break
    return [name for name in names if name]


def unwrapped(name: str) -> Sequence[str]:
    """The name as configs of other wrappers write it: without the wrapper, or with `model.` put in."""
    found = []
    for wrapper in (*_WRAPPERS, "model."):
        if name.startswith(wrapper):
            found += [name.removeprefix(wrapper), f"model.{name.removeprefix(wrapper)}"]
    found += [
        f"model.{name}",
        f"language_model.{name}",
        f"model.language_model.{name.removeprefix('model.')}",
    ]
    return [item for item in dict.fromkeys(found) if item != name]
