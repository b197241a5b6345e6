r"""Regular expressions of a stranger, evaluated in bounded time whatever they say.

Python's own engine tries alternatives one after another, so that `(a+)+$` on a long name never ends. Here
a pattern is evaluated on all positions at once: a set of positions, the bits of one integer, goes in and the
set of positions after the match comes out. What needs memory of what was matched (backreferences) is
refused, and so is a pattern that takes more steps than any sane one does.

Known: literals, `.`, classes, `\d \w \s \b`, groups, alternatives, `* + ? {m,n}` (lazy or not: the same set),
`^ $`, and lookahead and lookbehind of either sign.
"""

from __future__ import annotations

import re

from .position_sets import (
    CLASSES,
    Node,
    RegexRefused,
    Test,
    Text,
    begin,
    boundary,
    class_test,
    either,
    end,
    in_sequence,
    look,
    one,
    range_test,
    repeated,
)

MAX_PATTERN = 2_000  # characters; the longest published one has some 300
MAX_TEXT = 1_000  # characters of a name; the longest published ones have some 120
_MAX_REPEAT = 200
_MAX_DEPTH = 20
# Where so few choices are open, Python's engine (a hundred times faster) tries at most some 40,000 of them
# for the longest name that it is given here; published patterns stay below.
_FEW = {"repeats": 2, "optional": 3, "choices": 3}
_SHORT_TEXT = 200


class SafeRegex:
    """A regular expression that matches in bounded time.

    Args:
        pattern: in Python's syntax.

    Raises:
        RegexRefused: too long, not a pattern, or with a construct that is not known here.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise RegexRefused(f"has {len(pattern)} characters, more than {MAX_PATTERN}")
        parser = _Parser(pattern)
        self._node = parser.parse()
        few = all(parser.counts[kind] <= most for kind, most in _FEW.items())
        self._plain = re.compile(pattern) if few and not parser.nested else None

    @property
    def is_plain(self) -> bool:
        """Whether Python's own engine is quick enough for it."""
        return self._plain is not None

    def ends(self, text: str) -> int:
        """The positions, as bits, at which a match that begins with the text may end; 0 for no match.

        Raises:
            RegexRefused: the text is too long, or the pattern takes too many steps.
        """
        if len(text) > MAX_TEXT:
            raise RegexRefused(f"meets a name of {len(text)} characters, more than {MAX_TEXT}")
        return self._node(Text(text), 1)

    def matches(self, text: str) -> bool:
        """Whether the pattern matches from the start of the text on, as `re.match` does.

        Raises:
            RegexRefused: as `ends`.
        """
        if self._plain is not None and len(text) <= _SHORT_TEXT:
            return self._plain.match(text) is not None
        return self.ends(text) != 0

    def matches_whole(self, text: str) -> bool:
        """Whether the pattern matches the whole text.

        Raises:
            RegexRefused: as `ends`.
        """
        if self._plain is not None and len(text) <= _SHORT_TEXT:
            return self._plain.fullmatch(text) is not None
        return bool(self.ends(text) & 1 << len(text))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at, self._depth = pattern, 0, 0
        self.counts = dict.fromkeys(_FEW, 0)
        self.nested = False  # whether a group is repeated

    def parse(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._pattern):
            raise RegexRefused(f"has an unmatched ) at {self._at}")
        return node

    def _peek(self) -> str:
        return self._pattern[self._at] if self._at < len(self._pattern) else ""

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise RegexRefused("ends in the middle of a construct")
        self._at += 1
        return self._pattern[self._at - 1]

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RegexRefused(f"is nested more than {_MAX_DEPTH} deep")
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        self._depth -= 1
        self.counts["choices"] += len(branches) > 1
        return branches[0] if len(branches) == 1 else either(branches)

    def _branch(self) -> Node:
        nodes: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            group = self._peek() == "("
            nodes.append(self._quantified(self._atom(), group))
        return in_sequence(nodes)

    def _quantified(self, node: Node, group: bool) -> Node:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._peek())
        if bounds is not None:
            self._at += 1
        elif self._peek() == "{":
            bounds = self._bounds()
        if bounds is None:
            return node
        if self._peek() == "+":
            raise RegexRefused("has a possessive quantifier")
        self._take("?")  # lazy: the same set of ends
        if self._peek() in ("*", "+", "?", "{"):
            raise RegexRefused(f"has two quantifiers in a row at {self._at}")
        self.nested |= group and bounds != (0, 1)
        self.counts["optional" if bounds == (0, 1) else "repeats"] += 1
        return repeated(node, *bounds)

    def _bounds(self) -> tuple[int, int | None]:
        close = self._pattern.find("}", self._at)
        inside = self._pattern[self._at + 1 : close] if close > 0 else ""
        least, comma, most = inside.partition(",")
        if not all(not part or (part.isascii() and part.isdigit()) for part in (least, most)) or not inside:
            raise RegexRefused(f"has an unknown quantifier at {self._at}")
        if len(least) > 3 or len(most) > 3 or max(int(least or 0), int(most or 0)) > _MAX_REPEAT:
            raise RegexRefused(f"repeats more than {_MAX_REPEAT} times")
        self._at = close + 1
        low = int(least or 0)
        high = (int(most) if most else None) if comma else low
        if high is not None and high < low:
            raise RegexRefused("repeats at most fewer times than at least")
        return low, high

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return one(self._class())
        if character == "\\":
            return self._escape()
        if character in "^$":
            return begin if character == "^" else end
        if character == ".":
            return one(lambda found: found != "\n")
        if character in "*+?{":
            raise RegexRefused(f"has nothing to repeat at {self._at - 1}")
        return one(lambda found, own=character: found == own)  # type: ignore[misc]  # bound at once

    def _group(self) -> Node:
        looks = {"?=": (True, True), "?!": (True, False), "?<=": (False, True), "?<!": (False, False)}
        for mark, (ahead, wanted) in looks.items():
            if self._take(mark):
                node = look(self._alternatives(), ahead=ahead, wanted=wanted)
                break
        else:
            if self._take("?P<"):
                close = self._pattern.find(">", self._at)
                if close < 0:
                    raise RegexRefused("has a group name without an end")
                self._at = close + 1
            elif not self._take("?:") and self._peek() == "?":
                raise RegexRefused(f"has an unknown group at {self._at}")
            node = self._alternatives()
        if not self._take(")"):
            raise RegexRefused("has a group without an end")
        return node

    def _escape(self) -> Node:
        character = self._next()
        if character.lower() in CLASSES:
            return one(class_test(character))
        if character in "AZ":
            return begin if character == "A" else end
        if character == "b":
            return boundary
        if character.isalnum():
            raise RegexRefused(f"has the escape \\{character}, which is not known here")
        return one(lambda found, own=character: found == own)  # type: ignore[misc]  # bound at once

    def _class(self) -> Test:
        negative, tests, first = self._take("^"), list[Test](), True
        while first or self._peek() != "]":
            low = self._next()
            first = False
            if low == "\\":
                low = self._next()
                if low.lower() in CLASSES:
                    tests.append(class_test(low))
                    continue
                if low.isalnum():
                    raise RegexRefused(f"has the escape \\{low} in a class")
            high = low
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._next()
                high = self._next() if high == "\\" else high
            tests.append(range_test(low, high))
        self._next()
        return lambda found: any(test(found) for test in tests) is not negative
