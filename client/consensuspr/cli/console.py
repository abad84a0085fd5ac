"""What reaches the terminal: two consoles, colour by choice, model text made harmless.

Results go to standard output; progress, warnings and errors go to standard error, so that
output can be piped.  Text written by a model passes through :func:`printable` first: a
response may hold escape sequences that would repaint the terminal or rename its window.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from enum import StrEnum

from rich.console import Console

# Of tables in a pipe or a file, where nothing says how wide a line may be.
PIPED_WIDTH = 160


class ColorMode(StrEnum):
    """When to colour the output."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def make_console(color: ColorMode = ColorMode.AUTO, *, stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error.

    Args:
        color: AUTO colours a terminal only and heeds ``NO_COLOR``.
        stderr: write to standard error.
    """
    width = _width(stderr)
    match color:
        case ColorMode.AUTO:
            return Console(stderr=stderr, highlight=False, width=width)
        case ColorMode.ALWAYS:
            # The 16 colours that every terminal theme defines, so that they stay legible.
            return Console(
                stderr=stderr,
                highlight=False,
                width=width,
                force_terminal=True,
                color_system="standard",
                no_color=False,
            )
        case ColorMode.NEVER:
            return Console(stderr=stderr, highlight=False, width=width, color_system=None)


def _width(stderr: bool) -> int | None:
    """Return a width where there is neither a terminal nor ``COLUMNS`` to ask, else None."""
    stream = sys.stderr if stderr else sys.stdout
    return None if stream.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH


def printable(text: str) -> str:
    """Return ``text`` with everything that a terminal would obey or hide written out.

    Line feeds and tabs stay.  Control characters, bidirectional overrides, zero-width and
    other format characters, lone surrogates and private line separators become ``\\xNN`` or
    ``\\uNNNN``; all else is left alone.  O(len(text)).
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def one_line(text: str, limit: int = 60) -> str:
    """Return ``text`` printable, on one line and at most ``limit`` characters long."""
    flat = " ".join(printable(text[: 4 * limit]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
