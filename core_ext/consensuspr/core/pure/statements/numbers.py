"""The numbers that a text writes, wherever they stand.

The guard counts them, so no part of a text may hide one: names, subscripts, comments, strings and
text without statements are searched like prose.  Results of program code are looked up among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

from consensuspr.core.patterns import Magnitude, magnitude
from consensuspr.core.tables import FRACTIONS, SUBSCRIPTS, SUPERSCRIPTS

# Groups of thousands, as the reader of prose takes them too.
WHOLE: Final = r"[0-9]{1,3}(?:(?:,(?:\\!)?|\{,\}|\\,)[0-9]{3}(?![0-9]))+|[0-9]+"
_SCRIPTS: Final = {**SUPERSCRIPTS, **SUBSCRIPTS}
_WRITTEN: Final = re.compile(
    r"frac[ ]*(?P<above>[0-9])[ ]*(?P<below>[0-9])"
    rf"|(?P<whole>{WHOLE})(?:\.(?P<decimals>[0-9]+))?|\.(?P<fraction>[0-9]+)"
    rf"|(?P<glyph>[{''.join(FRACTIONS)}])"
    + "".join(
        rf"|(?P<{name}>[{''.join(char for char in chars if chars[char].isdigit())}]+)"
        for name, chars in (("raised", SUPERSCRIPTS), ("lowered", SUBSCRIPTS))
    )
)
_NOT_DIGITS: Final = re.compile(r"[^0-9]+")


class WrittenNumber(NamedTuple):
    """A number as a text writes it.

    Attributes:
        magnitude: its value without a sign.
        decimals: decimals that it shows; None for a part of a number, which is no result.
    """

    magnitude: Magnitude
    decimals: int | None


def written_numbers(text: str, start: int, end: int) -> Iterator[WrittenNumber]:
    """Yield the numbers in characters [start, end) of canonical characters."""
    for match in _WRITTEN.finditer(text, start, end):
        match match.lastgroup:
            case "below":
                yield WrittenNumber(Fraction(int(match["above"])), 0)
                yield WrittenNumber(Fraction(int(match["below"])), 0)
            case "glyph":
                for part in FRACTIONS[match["glyph"]].split("/"):
                    yield WrittenNumber(Fraction(int(part)), 0)
            case "raised" | "lowered":
                yield WrittenNumber(magnitude("".join(map(_SCRIPTS.__getitem__, match[0])), ""), 0)
            case _:
                groups = _NOT_DIGITS.split(match["whole"] or "")
                if len(groups) > 1:
                    # A list without blanks looks the same, so that each group counts, too.
                    yield from (WrittenNumber(magnitude(group, ""), None) for group in groups)
                whole = "".join(groups)
                decimals = match["decimals"] or match["fraction"] or ""
                yield WrittenNumber(magnitude(whole, decimals), len(decimals))
