"""Several sources made into one file of problems: read, judged, written.

Rows wait on disk until the last has been seen; memory holds what the census remembers.  The
output appears complete or not at all.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from consensusbench.sources.census import Fate, ProblemCensus, Sighting, sighting
from consensusbench.sources.reading import SourceInput, read_source
from consensusbench.sources.report import SourcesReport
from consensuspr.data import OnError, Problem, open_writer, problem_to_row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier


@dataclass(frozen=True, slots=True)
class Collection:
    """What to collect, and how.

    Attributes:
        inputs: the sources; of a text that several have, the first named one's is kept.
        output: file of problems, its format by the suffix.
        keep_leaked: keep training problems that are in a test source too.
        on_error: what a bad row does.
    """

    inputs: Sequence[SourceInput]
    output: str | os.PathLike[str]
    keep_leaked: bool = False
    on_error: OnError = "stop"


def collect_problems(
    collection: Collection, progress: Callable[[int], None] = lambda done: None
) -> SourcesReport:
    """Read the sources and write the problems that are kept.

    Args:
        collection: what and how.
        progress: called with the number of problems read.

    Returns:
        What became of the problems.

    Raises:
        DataError: a file cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: nothing is named, nothing is left, or the output cannot be written.
        HubUnavailable: the hub cannot be reached.
    """
    if not collection.inputs:
        raise InputError("no source is named")
    report = SourcesReport(collection.inputs)
    with AnswerVerifier() as verifier, tempfile.TemporaryFile(prefix="consensusbench-") as spool:
        census = ProblemCensus(lambda one, other: _same_answer(verifier, one, other))
        _spool(collection, census, spool, progress)
        report.conflicting_texts = census.conflicting_texts
        with open_writer(collection.output) as out:
            for problem in _judged(spool, census, report, collection.keep_leaked):
                out.write(problem_to_row(problem))
            if not report.written:
                read = sum(origin.read.rows for origin in report.inputs)
                raise InputError(f"of {read:,} problems read none is left to be written")
    return report


def _same_answer(verifier: AnswerVerifier, one: str, other: str) -> bool:
    """Say whether two ground truths are equal in value; where that stays open, they are not."""
    boxed = rf"\boxed{{{other}}}"
    return verifier.verify(one, boxed, rule="boxed").correct is True


def _spool(
    collection: Collection,
    census: ProblemCensus,
    spool: IO[bytes],
    progress: Callable[[int], None],
) -> None:
    """Count every problem, and put on disk what judging and writing it takes."""
    done = 0
    rule: tuple[str, str] | None = None
    for place, origin in enumerate(collection.inputs):
        for problem in read_source(origin, collection.on_error):
            rule = _one_rule(rule, problem, origin)
            seen = sighting(problem, place)
            may_be_kept = census.count(seen)
            # Pickle is quick, and nobody else sees this file.
            pickle.dump((seen, problem if may_be_kept else None), spool, pickle.HIGHEST_PROTOCOL)
            done += 1
            progress(done)


def _one_rule(
    known: tuple[str, str] | None, problem: Problem, origin: SourceInput
) -> tuple[str, str] | None:
    """Return the answer rule that the problems name so far, and who named it."""
    if problem.answer_rule is None:
        return known
    if known is None:
        return problem.answer_rule, origin.name
    if problem.answer_rule != known[0]:
        raise InputError(
            f"answer_rule {problem.answer_rule!r} of {origin.name} differs from {known[0]!r} "
            f"of {known[1]}; a dataset has one rule"
        )
    return known


def _judged(
    spool: IO[bytes], census: ProblemCensus, report: SourcesReport, keep_leaked: bool
) -> Iterator[Problem]:
    """Yield the problems to be written, in the order in which they were read."""
    spool.seek(0)
    seen: Sighting
    problem: Problem | None
    while True:
        try:
            seen, problem = pickle.load(spool)
        except EOFError:
            return
        fate = census.judge(seen, keep_leaked)
        report.note(seen, fate, census.leaked(seen))
        if fate is Fate.WRITTEN:
            assert problem is not None
            yield problem
