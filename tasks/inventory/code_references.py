"""What configs ask for by name: classes of the repository, of other repositories, kernels of the hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .config_facts import nested_mappings
from .record_trust import CodeReference

# `kernels-community/flash-attn@v1:flash_attn_func`, as transformers takes it for an attention implementation.
_HUB_KERNEL = re.compile(r"(?:paged\|)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@[^:]*)?(?::.*)?")
_LONGEST = 300  # characters of a stranger's key
_MAX = 500  # references in the record; real configs have some ten


def code_references(configs: Mapping[str, Mapping[str, Any]]) -> Sequence[CodeReference]:
    """Every class that `auto_map` or `custom_pipelines` names and every kernel, at any depth.

    Args:
        configs: file -> its parsed content.
    """
    found = []
    for file, config in configs.items():
        for pointer, part in nested_mappings(config):
            where = f"{file}#{pointer}"
            found += list(_auto_map(where, part.get("auto_map")))
            found += list(_pipelines(where, part.get("custom_pipelines")))
            found += list(_kernels(where, part))
    return [item.model_copy(update={"key": item.key[:_LONGEST]}) for item in found[:_MAX]]


def _auto_map(where: str, value: Any) -> Iterable[CodeReference]:
    if not isinstance(value, Mapping):
        return
    for key, named in value.items():
        for target in named if isinstance(named, list) else [named]:
            if isinstance(target, str) and target:
                yield _reference(f"{where}/auto_map/{key}", target)


def _pipelines(where: str, value: Any) -> Iterable[CodeReference]:
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        target = item.get("impl") if isinstance(item, Mapping) else None
        if isinstance(target, str) and target:
            yield _reference(f"{where}/custom_pipelines/{key}/impl", target)


def _kernels(where: str, part: Mapping[str, Any]) -> Iterable[CodeReference]:
    """Keys such as `_attn_implementation_internal` whose value is a repository, plain or one a sub-model."""
    for key, value in part.items():
        if "_implementation" not in key:
            continue
        values = value.items() if isinstance(value, Mapping) else [("", value)]
        for inner, target in values:
            match = _HUB_KERNEL.fullmatch(target) if isinstance(target, str) else None
            if match:
                place = f"{where}/{key}/{inner}".rstrip("/")
                yield CodeReference(key=place, target=target[:300], repository=match[1])


def _reference(key: str, target: str) -> CodeReference:
    repository, _, rest = target.rpartition("--")
    return CodeReference(key=key, target=(rest or target)[:300], repository=repository[:200])
