"""Which runs there are, and doing those that are missing, two at a time.

A run leaves one file, whole or not at all, so that the study goes on where it was stopped or
killed.  The primary arms come first, then those with built nodes, then the others: of each group
the learning rates, which each arm tries on seeds that are used for nothing else, and then whole
seeds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from consensuspr.data import atomic_file

from .arms import (
    ARMS,
    BUILT,
    COUNTED,
    NUM_WARM_STARTS,
    PRIMARY,
    SECOND,
    SECOND_RATE,
    SWAPPED,
    Settings,
)
from .inputs import Inputs

HERE = Path(__file__).resolve().parent
# Of the pilots, and of nothing else; it begins at the first warm start.
PILOT_SEED = 900
# Of folders for the nodes that grow with a run.
GROWN = ".grown-"


@dataclass(frozen=True)
class Plan:
    """How much is run; `PLAN.md` says why.

    Attributes:
        primary_seeds, exploratory_seeds, built_seeds: from 0 on.
        rates: learning rates that each arm tries,
        rate_seeds: on these seeds,
        rate_steps: for so many steps.
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
    """One run: where its result is, and what makes it.

    Attributes:
        kind: `pilots` before the plan is final, `rates` to choose a learning rate, `runs` what
            counts, `second` what counts in the second study.
    """

    kind: str
    arm: str
    seed: int
    learning_rate: float
    steps: int

    @property
    def name(self) -> str:
        rate = "" if self.kind in ("runs", "second") else f"-{self.learning_rate:g}"
        return f"{self.kind}/{self.arm}{rate}-{self.seed}"

    @property
    def warm_start(self) -> int:
        return self.seed % NUM_WARM_STARTS


def pilot_runs(plan: Plan) -> list[Run]:
    """Return the runs that say whether outcomes alone can be learned from, and not too easily."""
    return [Run("pilots", "outcome", PILOT_SEED, rate, plan.rate_steps) for rate in plan.rates]


def groups(plan: Plan) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return which arms are made together, and with how many seeds, in the order of the runs."""
    others = tuple(name for name in ARMS if name not in (*PRIMARY, *BUILT, *SWAPPED))
    return (
        (PRIMARY, plan.primary_seeds),
        (BUILT, plan.built_seeds),
        (tuple(SWAPPED), plan.primary_seeds),
        (others, plan.exploratory_seeds),
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


def counting_runs(plan: Plan, rates: dict[str, float]) -> list[Run]:
    """Return the runs that count, in the order in which they are made, of arms that have a rate."""
    return [
        Run("runs", name, seed, rates[ARMS[name].rate_of or name], plan.settings.steps)
        for names, seeds in groups(plan)
        for seed in range(seeds)
        for name in names
        if (ARMS[name].rate_of or name) in rates
    ]


def second_runs(plan: Plan) -> list[Run]:
    """Return the runs of the second study, of seeds that the first has not."""
    return [
        Run("second", name, seed, SECOND_RATE, plan.settings.steps)
        for seed in range(plan.primary_seeds, 2 * plan.primary_seeds)
        for name in SECOND
    ]


def chosen_rates(plan: Plan, results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the rate with the best mean accuracy at the end; of equals the lower.

    Of each arm of which all tries are there.
    """
    reached: dict[str, dict[float, list[float]]] = {}
    for result in results:
        run = result["run"]
        tried = reached.setdefault(run["arm"], {})
        tried.setdefault(run["learning_rate"], []).append(result["final"]["selection"]["acc"])
    return {
        arm: max(sorted(tried), key=lambda rate: fmean(tried[rate]))
        for arm, tried in reached.items()
        if sum(map(len, tried.values())) == len(plan.rates) * len(plan.rate_seeds)
    }


@dataclass(frozen=True)
class Study:
    """A folder with inputs and results, and the plan that they follow."""

    folder: Path
    plan: Plan

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.folder / "inputs")

    def path(self, run: Run) -> Path:
        return self.folder / "results" / f"{run.name}.json"

    def identity(self, run: Run) -> dict[str, Any]:
        """Return what makes a run that one, as its result has it."""
        made: dict[str, Any] = json.loads(
            json.dumps(
                {
                    "run": asdict(run),
                    "arm": asdict(ARMS[run.arm]),
                    "settings": asdict(self.settings(run)),
                    "inputs": self.inputs.digest(),
                }
            )
        )
        return made

    def settings(self, run: Run) -> Settings:
        return replace(self.plan.settings, steps=run.steps)

    def result(self, run: Run) -> dict[str, Any]:
        """Return the result of a finished run.

        Raises:
            SystemExit: it is of other inputs or settings, and must not be counted with these.
        """
        result: dict[str, Any] = json.loads(self.path(run).read_text())
        # Results of earlier releases lack later settings, and had these values.
        result["arm"]["reward"] = {**COUNTED, **result["arm"]["reward"]}
        if any(result[name] != value for name, value in self.identity(run).items()):
            raise SystemExit(f"{self.path(run)} is of other inputs or settings: remove it")
        return result

    def results(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        return [self.result(run) for run in runs if self.path(run).exists()]


def carry_out(study: Study, jobs: int, minutes: float | None, say: Callable[[str], None]) -> bool:
    """Do the runs that are missing; return whether none is left.

    Args:
        study: What, and where.
        jobs: Runs at the same time, each on one thread.
        minutes: No run begins that would not end by then; None: all begin.
        say: Told of each run that ended.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with study.inputs.serving() as address:
        # At which rates runs will be is not known beforehand; how many they are is.
        runs = counting_runs(study.plan, dict.fromkeys(ARMS, 0.0))
        everything = [*rate_runs(study.plan), *runs, *second_runs(study.plan)]
        work = _Work(study, address, jobs, deadline, say, everything)
        rates = dict(SWAPPED)
        for names, _ in groups(study.plan):
            tries = rate_runs(study.plan, names)
            if not work.do(tries):
                return False
            rates |= chosen_rates(study.plan, study.results(tries))
            if not work.do(counting_runs(study.plan, rates)):
                return False
            # As soon as the primary runs are there: all else is exploratory.
            if not work.do(second_runs(study.plan)):
                return False
    return True


def carry_out_pilots(study: Study, jobs: int, say: Callable[[str], None]) -> None:
    """Do the pilots that are missing."""
    with study.inputs.serving() as address:
        runs = pilot_runs(study.plan)
        _Work(study, address, jobs, None, say, runs).do(runs)


class _Work:
    """Runs in processes, until they are done or the time is over."""

    def __init__(
        self,
        study: Study,
        address: str,
        jobs: int,
        deadline: float | None,
        say: Callable[[str], None],
        everything: Sequence[Run],
    ) -> None:
        self._study = study
        self._address = address
        self._jobs = jobs
        self._deadline = deadline
        self._say = say
        self._everything = everything
        # Seconds of a step of the runs that ended, evaluation included.
        self._seconds: list[float] = []

    def do(self, runs: Sequence[Run]) -> bool:
        """Do those that are missing; return whether all are there."""
        missing = [run for run in runs if not self._study.path(run).exists()]
        begun: dict[Any, tuple[Run, float]] = {}
        waiting = iter(missing)
        done = len(runs) - len(missing)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self._jobs, context, begin_process) as pool:
            while True:
                while len(begun) < self._jobs and (run := next(waiting, None)):
                    if self._too_late(run):
                        waiting = iter(())
                        break
                    arguments = self._study, run, self._address
                    begun[pool.submit(run_one, *arguments)] = run, time.monotonic()
                if not begun:
                    break
                ended, _ = wait(begun, return_when=FIRST_COMPLETED)
                for future in ended:
                    run, started = begun.pop(future)
                    future.result()
                    done += 1
                    self._seconds.append((time.monotonic() - started) / run.steps)
                    self._tell(run, done, len(runs))
        return done == len(runs)

    def _tell(self, run: Run, done: int, of: int) -> None:
        acc = self._study.result(run)["final"]
        first = next(iter(acc.values()))["acc"]
        left = sum(run.steps for run in self._everything if not self._study.path(run).exists())
        hours = fmean(self._seconds) * left / self._jobs / 3600
        self._say(f"{run.name}: Acc {first:.1%}; {done} of {of}, about {hours:.1f} h left in all")

    def _too_late(self, run: Run) -> bool:
        if self._deadline is None:
            return False
        longest = max(self._seconds, default=0.0) * run.steps
        return time.monotonic() + longest > self._deadline


def begin_process() -> None:
    # Ctrl-C is the parent's; what a process has not finished is run again.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def made_by() -> dict[str, str]:
    """Return what a result says of its making: commit and machine.

    The commit has a mark where files differ from it, and is empty outside git.
    """
    import torch

    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    return {"commit": found.stdout.strip(), "machine": machine}


def run_one(study: Study, run: Run, address: str) -> None:
    """Do one run and write its result."""
    import torch

    from consensuspr.client import RewardClient
    from consensuspr.client.admin import AdminClient

    from .arms import Growth
    from .grpo import Policy, train
    from .model import Tokens

    arm = ARMS[run.arm]
    settings = study.settings(run)
    problems = study.inputs.problems()
    # Those of the second study too have only this, which was not planned (docs/study.md): as its
    # results have it, so that they can be made again.
    names = ("held-out", "longer") if run.kind == "runs" else ("selection",)
    tokens = Tokens()
    generator = torch.Generator().manual_seed(run.seed)
    model = study.inputs.model(run.warm_start, tokens)
    policy = Policy(model, tokens, run.learning_rate, generator, arm.max_tokens)
    with ExitStack() as stack:
        client = stack.enter_context(RewardClient(address, timeout_s=300, run=run.name))
        growth = None
        if arm.grows:
            # Where the server reads datasets.
            beside = study.inputs.folder
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=GROWN, dir=beside)))
            admin = stack.enter_context(AdminClient(address))
            name = run.name.replace("/", "-")
            growth = Growth(problems["train"], admin, name, folder)
            # The last of the stack leaves first: the server forgets it before its file goes.
            stack.callback(admin.remove, name)
        held_out = {name: problems[name] for name in names}
        result = train(policy, arm, settings, run.seed, problems["train"], held_out, client, growth)
    path = study.path(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {**study.identity(run), **made_by()}
    with atomic_file(path) as stream:
        stream.write((json.dumps({**about, **result}, separators=(",", ":")) + "\n").encode())
