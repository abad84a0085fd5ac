"""``OUTPUT.partial``: where a build works, and finds again what an earlier one left.

The folder lies beside the output, on its disk, and holds the journal of extractions: one record
a problem under the digest of all that the extractor was given.  So a build that was killed goes
on where it was; a problem whose text or rollouts changed since is extracted anew, and no other.
Each extractor and each of its settings has a journal of its own.  The folder goes when the
output is complete, or when it holds nothing worth keeping.
"""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from consensusbench.construction.extraction_rows import extraction_from_row, extraction_to_row
from consensusbench.construction.values import Group
from consensusbench.extraction.types import Extraction
from consensusbench.models.journal import Journal, digest
from consensuspr.data import Row
from consensuspr.errors import InputError

_PREFIX = "extraction-"


class Workspace:
    """The folder of one build; one process at a time.

    Args:
        output: the file that the build will write.

    Raises:
        InputError: the folder cannot be made, or another build of this output is under way.
    """

    def __init__(self, output: Path) -> None:
        self.folder = output.with_name(output.name + ".partial")
        self._journal: Journal | None = None
        self._done = False
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InputError(f"another process is building {output}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kept = self._journal is not None and len(self._journal) > 0
        if self._journal is not None:
            self._journal.close()
            if not kept:
                self._journal.path.unlink(missing_ok=True)
        others = any(self.folder.glob(f"{_PREFIX}*"))
        if self._done or not others:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def done(self) -> None:
        """Say that the output is complete."""
        self._done = True

    def open_journal(self, extractor: Row) -> ExtractionJournal:
        """Open the journal of an extractor.

        Args:
            extractor: name, version and thresholds.

        Raises:
            InputError: it cannot be opened.
            DataError: it is damaged.
        """
        path = self.folder / f"{_PREFIX}{digest(extractor)}.jsonl"
        others = any(one != path for one in self.folder.glob(f"{_PREFIX}*"))
        self._journal = Journal(path, "extraction", {"extractor": extractor})
        return ExtractionJournal(self._journal, others)


class ExtractionJournal:
    """Extractions by what they were made from.

    Attributes:
        found: problems whose extraction an earlier run left.
        others: whether there are journals of other settings.
    """

    def __init__(self, journal: Journal, others: bool) -> None:
        self._journal = journal
        self.found = len(journal)
        self.others = others

    def get(self, group: Group) -> Extraction | None:
        """Return the extraction of a problem where an earlier run made it from the same."""
        row = self._journal.get(group.inputs)
        return None if row is None else extraction_from_row(row)

    def add(self, group: Group, extraction: Extraction, *, durable: bool) -> None:
        """Keep an extraction; one that is there already stays.

        Args:
            group: the problem.
            extraction: what was made of it.
            durable: bring it to disk at once, because it was paid for.
        """
        if group.inputs not in self._journal:
            row = {"problem_id": group.problem.problem_id, **extraction_to_row(extraction)}
            self._journal.append(group.inputs, row, durable=durable)
