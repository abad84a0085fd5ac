"""ConsensusBench: making and using datasets whose problems carry consensus nodes.

The offline half of the project.  It reads and writes the rows of :mod:`consensuspr.data`,
and nothing of the online half imports it.  One folder a topic; this module has the helpers that
several folders share.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from consensuspr.data.writers import check_row_output
from consensuspr.errors import InputError

if TYPE_CHECKING:
    from consensuspr.scoring import AnswerVerifier

ReasonT = TypeVar("ReasonT", bound=str)
AnyPath: TypeAlias = str | os.PathLike[str]

_READERS = ("consensuspr.data.readers", "consensuspr.scoring.dataset_index")
# Methods of verdicts that a busy machine left undecided, not the answer.
_OF_THE_MACHINE = ("load", "killed")


def require(module: str, purpose: str) -> ModuleType:
    """Import a module of the extra ``consensusbench``.

    Args:
        module: its name, for example ``"sklearn.metrics"``.
        purpose: the work that needs it, as the beginning of the message.

    Raises:
        InputError: the package is not installed; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise InputError(
            f'{purpose} needs the package {package}: pip install "consensuspr[consensusbench]"'
        ) from None


class Tally(Counter[ReasonT]):
    """Counts of reasons; ``examples`` has the first example of each."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[ReasonT, str] = {}

    def note(self, reason: ReasonT, example: str) -> None:
        """Count one case of a reason."""
        self[reason] += 1
        self.examples.setdefault(reason, example)


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Read a file again without the warnings of the first time; errors are still logged."""
    loggers = [logging.getLogger(name) for name in _READERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def verify_patiently(
    verifier: AnswerVerifier, ground_truths: Sequence[str], responses: Sequence[str], rule: str
) -> list[bool | None]:
    """Return which responses are correct; None is undecided.

    An answer that the load of the machine left undecided is checked once more.
    """
    verdicts = verifier.verify_batch(ground_truths, responses, rule)
    again = [at for at, found in enumerate(verdicts) if found.method in _OF_THE_MACHINE]
    if again:
        truths, texts = [ground_truths[at] for at in again], [responses[at] for at in again]
        for at, found in zip(again, verifier.verify_batch(truths, texts, rule), strict=True):
            verdicts[at] = found
    return [found.correct for found in verdicts]


def check_outputs(
    outputs: Iterable[AnyPath | None],
    inputs: Iterable[AnyPath | None],
    *,
    makes_folders: bool = False,
) -> None:
    """Check that outputs are different files in existing folders, and no inputs.

    Every output replaces the file of its name as a whole.  A typing error must not replace rollouts
    that were paid for by the table made of them, nor show only when all work is done.

    Raises:
        InputError: two of the outputs are the same file, or one of them is an input, links
            followed, or its folder is missing, or it has the suffix of a table.
    """
    read = [Path(path) for path in inputs if path is not None]
    written: set[Path] = set()
    for path in (Path(path) for path in outputs if path is not None):
        check_row_output(path)
        resolved = path.resolve()
        if resolved in written:
            raise InputError(f"{path} is given for two outputs")
        written.add(resolved)
        if not makes_folders and not resolved.parent.exists():
            raise InputError(f"{path.parent} does not exist; create it first")
        if path.exists() and any(known.exists() and path.samefile(known) for known in read):
            raise InputError(f"{path} is an input of this command; choose another output")
