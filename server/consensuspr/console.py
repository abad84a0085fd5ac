"""Output on the terminal: consoles, progress, and text of a model made harmless.

Results go to standard output; progress, warnings and errors go to standard error.  A response may
hold escape sequences that would repaint the terminal, so it passes through :func:`printable`.
"""

from __future__ import annotations

import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

# Of tables in a pipe or a file, which have no width.
PIPED_WIDTH = 160


class ColorMode(StrEnum):
    """When to colour the output."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def make_console(color: ColorMode = ColorMode.AUTO, *, stderr: bool = False) -> Console:
    """Return a console; AUTO colours a terminal only and heeds ``NO_COLOR``."""
    width = _width(stderr)
    if color is ColorMode.AUTO:
        return Console(stderr=stderr, highlight=False, width=width)
    if color is ColorMode.NEVER:
        return Console(stderr=stderr, highlight=False, width=width, color_system=None)
    # The 16 colours that every terminal theme defines, so that they stay legible.
    return Console(
        stderr=stderr,
        highlight=False,
        width=width,
        force_terminal=True,
        color_system="standard",
        no_color=False,
    )


def _width(stderr: bool) -> int | None:
    """Return a width if there is neither a terminal nor ``COLUMNS``, else None."""
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


@contextmanager
def count_progress(
    work: str, total: int | None, unit: str, *, hidden: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yield a function that sets how many are done.

    Without a terminal the bar appears once, when it is done.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=make_console(stderr=True),
        disable=hidden,
    )
    with progress:
        task = progress.add_task(work, total=total)
        yield lambda done: progress.update(task, completed=done)
        if total is None:
            progress.update(task, total=progress.tasks[task].completed)


# Shows the progress of long work, as ``count_progress`` does.
ProgressBar: TypeAlias = Callable[
    [str, int | None, str], AbstractContextManager[Callable[[int], None]]
]


def share(count: int, total: int) -> str:
    """Return a count with its share in percent; less than all is never 100 %."""
    if not total:
        return "0"
    percent = 100 * count / total
    shown = f"{percent:.1f}"
    if count < total and shown == "100.0":
        shown = "99.9"
    return f"{count:,} ({shown} %)"


def count_of(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 rollout``, ``2 rollouts``, ``1 problem has``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def load_core() -> str:
    """Import the core, warn on standard error if it is the slow one, and return its backend.

    pip shows nothing of a build without a C compiler, so the command does.  Worker processes
    inherit the answer, so that the warning appears once.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from consensuspr.core import BACKEND
    if caught:
        console = make_console(stderr=True)
        for warning in caught:
            console.print(
                f"warning: {warning.message}", style="yellow", markup=False, soft_wrap=True
            )
        os.environ["CONSENSUSPR_PURE_PYTHON"] = "1"
    return BACKEND
