"""What every part of the inventory looks at, and what each part hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from day0.adapters.base.release import Release
from day0.adapters.models.expected_run import Answer

from ..finding import Finding
from .awaited import Awaited, read_awaited
from .config_facts import ConfigFacts
from .counts import Counted, LayerCount
from .patterns import Listing
from .quantization import DeclaredQuantization
from .record import Layer, Quantization
from .roles import look_around, place_groups
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
        layers: the same as facts; where there are no tensors by those that the config implies, else by the
            config alone.
        states: of the layers, in the same order.
        declared: quantisation by the config.
        observed: quantisation by the tensors.
        stored: how each low-precision weight is stored.
        answer: what the config implies, or why that is not known.
        implied: tensors that the config implies, as if they were stored; empty where that is not known.
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
    implied: Sequence[Counted]
    layouts: Sequence[str]
    answer: Answer

    @property
    def known(self) -> Sequence[Counted]:
        """What the counts are of: the stored tensors or, where there are none, the implied ones."""
        return self.counted or self.implied

    @property
    def basis(self) -> str:
        """What the counts are from: `headers`, `implied` by the config, or `none`."""
        return "headers" if self.counted else "implied" if self.implied else "none"

    @cached_property
    def awaited(self) -> Awaited:
        """What absent and unread files hold."""
        return read_awaited(self.release.checkpoint)

    def awaits(self, *, part: str = "", role: str = "") -> bool:
        """Whether a tensor of that part and role may be in a file that is absent or unread."""
        return self.awaited.untold or any(
            part in ("", held) and role in ("", played) for held, played in self._awaited_places
        )

    @cached_property
    def _awaited_places(self) -> frozenset[tuple[str, str]]:
        groups = self.awaited.groups
        around = look_around(
            [*self.listing.groups, *groups], self.facts.architecture.layers, self.facts.mtp_layers > 0
        )
        return frozenset((place.part, place.role) for _, place in place_groups(groups, around))


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
