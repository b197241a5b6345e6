"""The words of one chat template, by Jinja's own parser; nothing is rendered."""

from __future__ import annotations

from collections.abc import Iterable, Set

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from day0.adapters.checkpoints.strict_json import shorten


def words_of(text: str) -> tuple[Set[str], str]:
    """Names, attributes and short texts that a template uses; or none of them and why it cannot be parsed."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    try:
        return set(_words(environment.parse(text))), ""
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f" in line {line}" if line else ""
        return set(), f"{shorten(error.message or type(error).__name__)}{where}"
    except (RecursionError, MemoryError):
        return set(), "is nested too deeply"
    except (ValueError, OverflowError) as error:  # literals that Python does not take
        return set(), shorten(str(error)) or type(error).__name__


class _Generation(Extension):
    """Transformers' `{% generation %}`, which marks what the assistant says; only its parsing matters."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _words(tree: nodes.Template) -> Iterable[str]:
    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Const, nodes.TemplateData)):
        if isinstance(node, nodes.Name):
            yield node.name
        elif isinstance(node, nodes.Getattr):
            yield node.attr
        elif isinstance(node, nodes.Const) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, nodes.TemplateData):
            yield node.data
