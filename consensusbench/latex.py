"""Text from models and files inside LaTeX tables: shown as it is, never read as commands."""

from __future__ import annotations

from typing import Final

from consensuspr.cli.console import one_line

MAX_CHARS: Final = 200

# A row that begins with a star or a bracket would be read as an argument of the line break
# before it, however much space stands between; in braces either is only a character.
_ESCAPES: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"{{{character}}}" for character in "[]*"},
    }
)


def escaped(text: str) -> str:
    """Return text for a cell, on one line and at most :data:`MAX_CHARS` characters of it."""
    return one_line(text, MAX_CHARS).translate(_ESCAPES)
