"""What every part of the inventory looks at, and what each part hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.release import Release
from day0.adapters.models.expected_run import Answer

from ..finding import Finding
from .config_facts import ConfigFacts
from .counts import Counted, LayerCount
from .patterns import Listing
from .quantization import DeclaredQuantization
from .record import Layer, Quantization
from .state import LayerState
from .stored_weights import StoredWeights
from .texts import Texts


@dataclass(frozen=True)
class Seen:
    """Everything that the parts look at.

    Attributes:
        release: the opened release.
        texts: its small files.
        facts: the config.
        listing: all tensors, folded.
        counted: all groups with place and parameters.
        stack: the text model's layers as the tensors show them.
        layers: the same as facts, by the config alone where there are no tensors.
        states: of the layers, in the same order.
        declared: quantisation by the config.
        observed: quantisation by the tensors.
        stored: how each low-precision weight is stored.
        answer: what the config implies, or why that is not known.
        layouts: that memory per rank was asked for; empty: the usual ones.
    """

    release: Release
    texts: Texts
    facts: ConfigFacts
    listing: Listing
    counted: Sequence[Counted]
    stack: Sequence[LayerCount]
    layers: Sequence[Layer]
    states: Sequence[LayerState]
    declared: DeclaredQuantization
    observed: Quantization
    stored: StoredWeights
    layouts: Sequence[str]
    answer: Answer


@dataclass(frozen=True)
class Part:
    """What one part of the inventory found.

    Attributes:
        fields: fields of `InventoryFacts` by name.
        findings: what a person may have to act on.
        sources: JSON pointer into the facts -> where the value came from.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
