"""Doing the runs that are missing, one after the other, and the table of their results.

The table has a row for each finished run and is only ever appended to, so that a killed study goes
on from there: each row is a gzip member of its own.  The run that was under way is lost, two
minutes at most, and done again from its seed.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import platform
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from .grpo import Policy, train
from .nodes import Nodes, Problems
from .plan import ARMS, Plan, Run, chosen_rates
from .starts import Inputs, Say

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A file of results, gzip'd JSON lines."""

    path: Path

    def rows(self) -> dict[Run, Row]:
        """Return the rows of finished runs."""
        return {Run(**row["run"]): row for row in self._read()[0]}

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row, and have it on disk before returning."""
        whole = self._read()[1]
        with self.path.open("ab") as out:
            # A row that a kill cut off.
            out.truncate(whole)
            out.write(gzip.compress(f"{json.dumps(row)}\n".encode(), mtime=0))
            out.flush()
            os.fsync(out.fileno())

    def _read(self) -> tuple[list[Row], int]:
        """Return the rows, and the length in bytes of those that are whole.

        Raises:
            SystemExit: the file is damaged, and not just cut off.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        rows: list[Row] = []
        at = 0
        while at < len(data):
            member = zlib.decompressobj(wbits=31)
            try:
                text = member.decompress(data[at:])
            except zlib.error as error:
                raise SystemExit(f"{self.path} is damaged from byte {at} on: {error}") from None
            if not member.eof:
                break
            rows += map(json.loads, text.splitlines())
            at = len(data) - len(member.unused_data)
        return rows, at

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from adding rows.

        Raises:
            SystemExit: another command does.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SystemExit(f"another command is adding runs to {self.path}") from None
            yield


@dataclass(frozen=True)
class Study:
    """A plan, the files that its runs begin from, and the table of their results."""

    plan: Plan
    inputs: Inputs
    table: Table

    def identity(self, run: Run) -> Row:
        """Return what a run is made of, the first part of its row."""
        found = {**self.plan.identity(run), "inputs": self.inputs.digest(run.start)}
        identity: Row = json.loads(json.dumps(found))
        return identity

    def results(self, runs: Sequence[Run], *, complete: bool = False) -> list[Row]:
        """Return the rows of the finished ones of these runs.

        Raises:
            SystemExit: a row is of other inputs or settings, or, with ``complete``, missing.
        """
        rows = self.table.rows()
        found = [run for run in runs if run in rows]
        for run in found:
            if any(rows[run][name] != value for name, value in self.identity(run).items()):
                raise SystemExit(f"{self.table.path}: {run.name} has other inputs or settings")
        if complete and len(found) < len(runs):
            raise SystemExit(f"{self.table.path} has {len(found)} of {len(runs)} runs")
        return [rows[run] for run in found]

    def rates(self) -> dict[str, float]:
        """Return the chosen learning rates.

        Raises:
            SystemExit: not all runs that choose them are there.
        """
        return chosen_rates(self.results(self.plan.selection(), complete=True))

    def carry_out(self, perform: Callable[[Run], Row], say: Say) -> None:
        """Do the missing runs in the plan's order.

        Args:
            perform: does a run, and returns its row.
            say: called after each run.
        """
        with self.table.locked():
            # No rate changes the number of runs.
            total = len(self.plan.runs(dict.fromkeys(ARMS, 0.0)))
            for choose in (
                self.plan.selection,
                lambda: self.plan.main(self.rates()),
                lambda: self.plan.others(self.rates()),
            ):
                runs = choose()
                there = {Run(**row["run"]) for row in self.results(runs)}
                for run in (run for run in runs if run not in there):
                    row = {**self.identity(run), **perform(run)}
                    self.table.add(row)
                    done = self.table.rows().values()
                    hours = fmean(row["seconds"] for row in done) * (total - len(done)) / 3600
                    say(
                        f"[{len(done)} of {total}] {run.name}: greedy Acc"
                        f" {row['final']['greedy']:.1%}, {row['seconds']:.0f} s;"
                        f" about {hours:.1f} h left"
                    )


def perform(study: Study, problems: Problems, run: Run) -> Row:
    """Do one run and return its results."""
    plan, arm = study.plan, ARMS[run.arm]
    of_random = study.inputs.random_nodes(run.level) if arm.nodes is Nodes.RANDOM else {}
    held_out = problems.selection if run.part == "selection" else problems.held_out
    model = study.inputs.model(run.start)
    policy = Policy(model, run.learning_rate, run.stream, plan.settings.max_tokens)
    with problems.scoring(sorted({Nodes.AUTHOR, arm.nodes}), of_random) as client:
        result = train(policy, arm, plan.settings, run.group, problems.train, held_out, client)
    return {**result, **_made_by()}


def _made_by() -> dict[str, str]:
    """Return commit and machine of a result.

    The commit has a mark if files differ from it, and is empty outside git.
    """
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    return {"commit": found.stdout.strip(), "machine": machine}
