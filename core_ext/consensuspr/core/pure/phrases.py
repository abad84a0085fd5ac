"""The number of different phrases of a text, a length that repeated filler does not raise.

A phrase is three words in a row, whatever stands between them.  A word is a run of ASCII letters,
or one character beyond ASCII, for scripts that do not separate words.  Digits and signs are
skipped, so that lines which differ only in their numbers have the same phrases.
"""

from __future__ import annotations

import re
from typing import Final

from consensuspr.core.patterns import encode

PHRASE_WORDS: Final = 3
_WORD: Final = re.compile(rb"[A-Za-z]+|[\xc0-\xff][\x80-\xbf]*")


def count_phrases(text: str | bytes, limit: int) -> int:
    """Return how many different phrases a text has, at most ``limit``.

    Case makes no difference.  Counting stops at the limit, which bounds time and memory.
    """
    found: set[tuple[bytes, ...]] = set()
    phrase: tuple[bytes, ...] = ()
    for match in _WORD.finditer(encode(text)):
        if len(found) >= limit:
            break
        phrase = (*phrase[-PHRASE_WORDS + 1 :], match[0].lower())
        if len(phrase) == PHRASE_WORDS:
            found.add(phrase)
    return len(found)
