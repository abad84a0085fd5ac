"""The runs of the study, the table of their results, and doing the missing ones.

The table has a row for each finished run, so a study that was stopped or killed goes on from there.
The primary arms come first, then those with built nodes, then the others: of each group the
learning rates, which each arm tries on seeds that are used for nothing else, and then whole seeds.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import multiprocessing
import os
import platform
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from consensuspr.data import Row, open_writer

from .arms import ARMS, BUILT, NUM_WARM_STARTS, PRIMARY, SECOND, SECOND_RATE, SWAPPED, Settings
from .inputs import Inputs

HERE = Path(__file__).resolve().parent
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How much is run; `PLAN.md` has the reasons.

    Attributes:
        primary_seeds, exploratory_seeds, built_seeds: from 0 on.
        rates, rate_seeds, rate_steps: learning rates that each arm tries, on which seeds, and
            for how many steps.
        settings: of every run that counts.
    """

    primary_seeds: int = 12
    exploratory_seeds: int = 4
    built_seeds: int = 12
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    rate_seeds: tuple[int, ...] = (100, 101)
    rate_steps: int = 100
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Run:
    """One run, and the key of its row in the table.

    Attributes:
        kind: `pilots` before the plan is final, `rates` to choose a learning rate, `runs` what
            counts, `second` what counts in the second study, `verl` in verl, `usual` and
            `unsolved` from weak starts.
    """

    kind: str
    arm: str
    seed: int
    learning_rate: float
    steps: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.arm}-{self.learning_rate:g}-{self.seed}"

    @property
    def warm_start(self) -> int:
        return self.seed % NUM_WARM_STARTS


def groups(plan: Plan) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return which arms are made together, and with how many seeds, in the order of the runs."""
    exploratory = tuple(name for name in ARMS if name not in (*PRIMARY, *BUILT, *SWAPPED))
    return (
        (PRIMARY, plan.primary_seeds),
        (BUILT, plan.built_seeds),
        (tuple(SWAPPED), plan.primary_seeds),
        (exploratory, plan.exploratory_seeds),
    )


def rate_runs(plan: Plan, names: Sequence[str] = tuple(ARMS)) -> list[Run]:
    """Return the runs that choose learning rates of arms."""
    return [
        Run("rates", name, seed, rate, plan.rate_steps)
        for name in names
        if ARMS[name].rate_of is None and name not in SWAPPED
        for rate in plan.rates
        for seed in plan.rate_seeds
    ]


def counting_runs(plan: Plan, rates: Mapping[str, float]) -> list[Run]:
    """Return the runs that count, of arms that have a learning rate, in their order."""
    return [
        Run("runs", name, seed, rates[ARMS[name].rate_of or name], plan.settings.steps)
        for names, seeds in groups(plan)
        for seed in range(seeds)
        for name in names
        if (ARMS[name].rate_of or name) in rates
    ]


def second_runs(plan: Plan) -> list[Run]:
    """Return the runs of the second study, with seeds that the first has not."""
    return [
        Run("second", name, seed, SECOND_RATE, plan.settings.steps)
        for seed in range(plan.primary_seeds, 2 * plan.primary_seeds)
        for name in SECOND
    ]


def chosen_rates(plan: Plan, results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the rate with the best mean accuracy of each arm whose tries are complete.

    Of equal rates the lowest.
    """
    reached: dict[str, dict[float, list[float]]] = {}
    for result in results:
        run = result["run"]
        tries = reached.setdefault(run["arm"], {})
        tries.setdefault(run["learning_rate"], []).append(result["final"]["selection"]["acc"])
    return {
        arm: max(sorted(tries), key=lambda rate: fmean(tries[rate]))
        for arm, tries in reached.items()
        if sum(map(len, tries.values())) == len(plan.rates) * len(plan.rate_seeds)
    }


@dataclass(frozen=True)
class Study:
    """A folder with inputs and the table of results, and the plan that they follow."""

    folder: Path
    plan: Plan

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.folder / "inputs")

    @property
    def table(self) -> Path:
        """The results, a JSON object a line."""
        return self.folder / "results.jsonl.gz"

    def identity(self, run: Run) -> dict[str, Any]:
        """Return what a run is made from, the first part of its row."""
        made: dict[str, Any] = {"run": asdict(run), "inputs": self.inputs.digest()}
        if run.kind in ("pilots", "rates", "runs", "second"):
            made |= {"arm": asdict(ARMS[run.arm]), "settings": asdict(self.settings(run))}
        return made

    def settings(self, run: Run) -> Settings:
        return replace(self.plan.settings, steps=run.steps)

    def rows(self) -> dict[Run, dict[str, Any]]:
        """Return the results of all finished runs."""
        if not self.table.exists():
            return {}
        with gzip.open(self.table) as lines:
            return {Run(**row["run"]): row for row in map(json.loads, lines)}

    def add(self, row: Row) -> None:
        """Write the table with one more row; a kill leaves the old table or the new one."""
        # Two commands can end a run at the same time.
        with self.inputs.facts.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            rows = self.rows()
            with open_writer(self.table) as out:
                for kept in (*rows.values(), row):
                    out.write(kept)

    def results(self, runs: Sequence[Run], *, complete: bool = False) -> list[dict[str, Any]]:
        """Return the results of the finished ones of these runs.

        Raises:
            SystemExit: a row is of other inputs or settings, or, with ``complete``, missing.
        """
        rows = self.rows()
        found = [run for run in runs if run in rows]
        for run in found:
            if any(rows[run][name] != value for name, value in self.identity(run).items()):
                raise SystemExit(f"{self.table}: {run.name} is of other inputs or settings")
        if complete and len(found) < len(runs):
            raise SystemExit(f"{self.table} has {len(found)} of {len(runs)} runs: do the others")
        return [rows[run] for run in found]

    def do(
        self, runs: Sequence[Run], perform: Callable[[Run], Row], pool: Executor, say: Say
    ) -> None:
        """Do the missing runs in their order.

        Args:
            runs: all that shall be there.
            perform: does a run, and returns its row.
            pool: of :func:`workers`.
            say: called for each run that ended.
        """
        rows = self.rows()
        begun = [pool.submit(perform, run) for run in runs if run not in rows]
        for number, future in enumerate(as_completed(begun), start=1):
            row = future.result()
            self.add(row)
            left = f"{len(begun) - number} left of {len(runs)}"
            say(f"{Run(**row['run']).name}: {row['cpu_seconds']:.0f} s; {left}")


@contextmanager
def workers(jobs: int) -> Iterator[Executor]:
    """Start processes with one thread each; an error cancels the runs that have not begun."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin_process) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    # Ctrl-C is the parent's; a run that a process has not finished is done again.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def carry_out(study: Study, jobs: int, say: Say) -> None:
    """Do the missing runs of the loop."""
    plan = study.plan
    with study.inputs.serving() as address, workers(jobs) as pool:
        do = partial(study.do, perform=partial(run_one, study, address), pool=pool, say=say)
        rates = dict(SWAPPED)
        for names, _ in groups(plan):
            tries = rate_runs(plan, names)
            do(tries)
            rates |= chosen_rates(plan, study.results(tries))
            do(counting_runs(plan, rates))
            # As soon as the primary runs are there: all others are exploratory.
            do(second_runs(plan))


def made_by() -> dict[str, str]:
    """Return commit and machine of a result.

    The commit has a mark if files differ from it, and is empty outside git.
    """
    import torch

    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    return {"commit": found.stdout.strip(), "machine": machine}


def run_one(study: Study, address: str, run: Run) -> Row:
    """Do one run and return its row."""
    from consensuspr.client import RewardClient
    from consensuspr.client.admin import AdminClient

    from .arms import Growth
    from .grpo import Policy, train

    arm = ARMS[run.arm]
    problems = study.inputs.problems()
    # The second study was evaluated on these by mistake (docs/study.md, deviations).
    names = ("held-out", "longer") if run.kind == "runs" else ("selection",)
    model = study.inputs.model(run.warm_start)
    policy = Policy(model, run.learning_rate, run.seed, arm.max_tokens)
    with ExitStack() as stack:
        client = stack.enter_context(RewardClient(address, timeout_s=300, run=run.name))
        growth = None
        if arm.grows:
            # Beside the other datasets, where the server may read.
            scratch = TemporaryDirectory(prefix=".grown-", dir=study.inputs.folder)
            folder = Path(stack.enter_context(scratch))
            admin = stack.enter_context(AdminClient(address))
            growth = Growth(problems["train"], admin, run.name, folder)
            # Called first: the server drops the dataset before its file goes.
            stack.callback(admin.remove, run.name)
        held_out = {name: problems[name] for name in names}
        result = train(
            policy, arm, study.settings(run), problems["train"], held_out, client, growth
        )
    return {**study.identity(run), **made_by(), **result}
