"""One ``sample`` command: look at the problems, draw, and write what was drawn.

How a run ends
    ``done``         every problem has what it can get; the output is written.
    ``unfinished``   some problems wait for a model that did not answer; the output holds the rest.
    ``stopped``      a signal, a limit or a fault ended it; no output, so that half a file is
                     never taken for a whole one.  The journal holds all replies that came in,
                     and ``finish`` writes the output from it without asking anybody.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from consensusbench.models import Budget, ChatModel
from consensusbench.output_files import check_outputs, check_row_outputs
from consensusbench.sampling.checking import Checker
from consensusbench.sampling.estimate import Estimate, estimate
from consensusbench.sampling.interruption import Interruption
from consensusbench.sampling.output import Output, Report, write_rollouts
from consensusbench.sampling.records import Records, journal_path
from consensusbench.sampling.sampler import Run, Sampler
from consensusbench.sampling.settings import SampleSettings
from consensuspr.data import OnError, Problem, ReadReport, read_problems
from consensuspr.errors import InputError

TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What to sample, from what, to where, within which limits.

    Attributes:
        problems: the dataset.
        output: where the rollouts go.
        settings: how many of what kind.
        max_cost: US dollars, earlier runs on the same output included.
        max_requests: the same for requests.
        max_tokens: the same for tokens of prompts and replies.
        finish: ask nothing, write what the journal holds.
        grace_s: how long requests in flight may go on after a signal.
        on_error: what a bad row of the dataset does.
    """

    problems: Path
    output: Output
    settings: SampleSettings
    max_cost: float | None = None
    max_requests: int | None = None
    max_tokens: int | None = None
    finish: bool = False
    grace_s: float = 30.0
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        check_row_outputs((self.output.path,))
        outputs = (self.output.path, self.output.provenance_path, self.journal)
        check_outputs(outputs, [self.problems])
        unpriced = [model.name for model in self.settings.models if not model.is_priced]
        if self.max_cost is not None and unpriced:
            raise InputError(
                f"a limit on cost needs prices, and {unpriced[0]} has none: "
                "give price_in and price_out in a models file"
            )

    @property
    def journal(self) -> Path:
        """Where every reply is kept."""
        return journal_path(self.output.path)

    def read(self) -> Iterator[Problem]:
        """Yield the problems."""
        return read_problems(self.problems, self.on_error)


@dataclass(slots=True)
class Progress:
    """What a progress bar shows; the job changes it, whoever watches is told."""

    phase: str = "sampling"
    problems: int = 0
    total: int = 0
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        run: what sampling came to; None where nothing was asked.
        report: of the output that was written; None where none was.
        signal: that stopped it, if any.
        total: problems of the dataset.
    """

    run: Run | None
    report: Report | None
    signal: signal.Signals | None
    total: int


def count_problems(job: Job) -> ReadReport:
    """Read the dataset once, so that a bad row stops the command before anything is paid."""
    report = ReadReport()
    for _ in read_problems(job.problems, job.on_error, report):
        pass
    return report


async def estimate_job(job: Job) -> Estimate:
    """Return what is left to do, and change nothing."""
    path = job.journal if job.journal.exists() else None
    records = Records(path, job.settings, read_only=True)
    try:
        return await estimate(job.read(), job.settings, records)
    finally:
        records.close()


async def run_job(job: Job, total: int, watch: Callable[[Progress], None]) -> Outcome:
    """Sample and write.

    Args:
        job: what to do.
        total: number of problems.
        watch: told every half second how it goes.

    Raises:
        ConsensusPRError: see :class:`Sampler`, :class:`Records` and :func:`write_rollouts`; what
            stops the asking is not raised but part of the outcome.
    """
    if job.finish and not job.journal.exists():
        raise InputError(f"{job.journal}: no such file, so that there is nothing to finish")
    records = Records(job.journal, job.settings)
    try:
        with Checker(records, job.settings) as checker:
            run, stopped = None, None
            if not job.finish:
                run, stopped = await _draw(job, total, records, checker, watch)
            report = None
            if run is None or (run.stopped_by is None and stopped is None):
                report = await _write(job, total, records, checker, watch)
            return Outcome(run, report, stopped, total)
    finally:
        records.close()


async def _draw(
    job: Job,
    total: int,
    records: Records,
    checker: Checker,
    watch: Callable[[Progress], None],
) -> tuple[Run, signal.Signals | None]:
    budget = Budget(job.max_cost, job.max_requests, job.max_tokens)
    budget.charge_earlier(records.earlier)
    async with AsyncExitStack() as stack:
        models = [
            await stack.enter_async_context(ChatModel(model, budget))
            for model in job.settings.models
        ]
        sampler = Sampler(job.settings, models, budget, records, checker)
        work = asyncio.ensure_future(sampler.sample(job.read()))
        with Interruption(work, budget, job.grace_s) as interruption:
            while not work.done():
                await asyncio.wait((work,), timeout=TICK_S)
                spent = budget.spent
                watch(
                    Progress(
                        "stopping" if budget.stopped else "sampling",
                        sampler.run.finished,
                        total,
                        spent.requests,
                        spent.tokens,
                        spent.cost,
                    )
                )
        if work.cancelled():
            return sampler.run, interruption.signal
        return work.result(), interruption.signal


async def _write(
    job: Job,
    total: int,
    records: Records,
    checker: Checker,
    watch: Callable[[Progress], None],
) -> Report:
    def advance_to(done: int) -> None:
        watch(Progress("writing", done, total))

    return await write_rollouts(job.read(), job.output, job.settings, records, checker, advance_to)
