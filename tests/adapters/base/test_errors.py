"""Words of errors that are not our own."""

from __future__ import annotations

from day0.adapters.base.errors import words_of


def test_addresses_and_hints_are_left_out() -> None:
    error = NotImplementedError(
        "There was no rule registered for flex_attention and mode\n"
        "<day0.x.Recorder object at 0x7f6e96f92810>."
        "Hint: set <day0.x.Recorder object at 0x7f6e96f92810>'s supports_higher_order_operators to True."
    )
    said = "NotImplementedError: There was no rule registered for flex_attention and mode <day0.x.Recorder>"
    assert words_of(error) == said
    assert words_of(ValueError("<function f at 0x7f>"), 300) == "ValueError: <function f>"
    assert words_of(ValueError("ab" * 300), 10) == "ValueError: ababababab"
