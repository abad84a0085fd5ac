"""Sets of nodes and the rollouts that they are scored on.

Nodes are at hand (GSM8K's gold steps, the read ones of AIME) or ``consensusbench build`` makes them
with its defaults.  A rollout is never scored by nodes that were made from it: nodes are built from
other files, or without the model that wrote it, or in parts if one model wrote all.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path

import numpy as np

from benchmarks.quality.data import as_program, read_rollouts, write_dataset
from benchmarks.texts import write_rows
from consensusbench.evaluation.scored import ScoredSet, score_files
from consensusbench.quality.probes import ProbeReport, probe_dataset
from consensuspr.data import Problem, Row
from consensuspr.scoring.rewards import CodeCredit


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Nodes, and the rollouts that they are scored on.

    Attributes:
        rollouts: names of files of rollouts that are scored.
        at_hand: reads the nodes; None to build them.
        sources: files to build from; the scored ones without those that are held out, if empty.
        parts: into how many a problem's rollouts are divided; 0 to hold out a model at a time.
        programs: score the rollouts rewritten as programs, with ``code="computed"``.
        models: writers whose rollouts are also shown alone.
    """

    name: str
    rollouts: tuple[str, ...]
    at_hand: Callable[[Path], list[Problem]] | None = None
    sources: tuple[str, ...] = ()
    parts: int = 0
    programs: bool = False
    models: tuple[str, ...] = ()


@dataclass(slots=True)
class Workbench:
    """Makes datasets and scores rollouts, each once; files go into ``folder``."""

    shared: Path
    folder: Path
    _datasets: dict[object, Path] = field(default_factory=dict)
    _scored: dict[NodeSet, ScoredSet] = field(default_factory=dict)
    _probes: dict[object, ProbeReport] = field(default_factory=dict)
    _files: int = 0
    _start: float = field(default_factory=time.monotonic)

    def dataset(self, nodes: NodeSet) -> Path:
        """Return the nodes at hand, or those that all sources make."""
        made_of = nodes.at_hand or nodes.sources or nodes.rollouts
        if made_of not in self._datasets:
            self._datasets[made_of] = self._all_nodes(nodes)
        return self._datasets[made_of]

    def scored(self, nodes: NodeSet) -> ScoredSet:
        """Return the rollouts, each scored by nodes that were made without it."""
        if nodes not in self._scored:
            self._scored[nodes] = merged(self._score(nodes))
        return self._scored[nodes]

    def probes(self, nodes: NodeSet) -> ProbeReport:
        """Return what the attacks of ``consensusbench validate`` earn of a set of nodes."""
        probed = (self.dataset(nodes), nodes.rollouts)
        if probed not in self._probes:
            self.log(f"{nodes.name}: attacks")
            rollouts = self._write(read_rollouts(self.shared, nodes.rollouts))
            self._probes[probed] = probe_dataset(self.dataset(nodes), [rollouts])
        return self._probes[probed]

    def log(self, text: str) -> None:
        """Print progress, with the seconds since the start."""
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def _all_nodes(self, nodes: NodeSet) -> Path:
        if nodes.at_hand is not None:
            return write_dataset(self._path("nodes"), nodes.at_hand(self.shared))
        self.log(f"{nodes.name}: build from all rollouts")
        return self._build(read_rollouts(self.shared, nodes.sources or nodes.rollouts))

    def _score(self, nodes: NodeSet) -> Iterator[ScoredSet]:
        rows = read_rollouts(self.shared, nodes.rollouts)
        if nodes.at_hand is not None or nodes.sources:
            self.log(f"{nodes.name}: score {len(rows):,} rollouts")
            yield self._score_rows(rows, self.dataset(nodes), nodes.programs)
            return
        for name, held in splits_of(nodes, rows):
            self.log(f"{nodes.name}: build without {name}, score it")
            dataset = self._build([*compress(rows, np.logical_not(held))])
            yield self._score_rows([*compress(rows, held)], dataset, nodes.programs)

    def _score_rows(self, rows: Sequence[Row], dataset: Path, programs: bool) -> ScoredSet:
        code = CodeCredit.COMPUTED if programs else CodeCredit.WRITTEN
        path = self._write([*as_programs(rows)] if programs else rows)
        return score_files([path], dataset, code=code)

    def _build(self, rows: Sequence[Row]) -> Path:
        """Build a dataset as ``consensusbench build`` does by default, in one process."""
        rollouts, dataset = self._write(rows), self._path("built")
        words = ["build", str(rollouts), "--output", str(dataset), "--workers", "1", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "consensusbench.cli", *words], capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"consensusbench {' '.join(words)} failed:\n{done.stderr}")
        return dataset

    def _write(self, rows: Sequence[Row]) -> Path:
        return write_rows(self._path("rollouts"), rows)

    def _path(self, kind: str) -> Path:
        self._files += 1
        return self.folder / f"{self._files}-{kind}.jsonl"


def splits_of(nodes: NodeSet, rows: Sequence[Row]) -> Iterator[tuple[str, list[bool]]]:
    """Yield a name and which rollouts are held out: a model's, or a part of each problem's."""
    if not nodes.parts:
        for model in sorted({row["model"] for row in rows}):
            yield model, [row["model"] == model for row in rows]
        return
    seen: Counter[str] = Counter()
    places = []  # of each rollout among those of its problem
    for row in rows:
        places.append(seen[row["problem_id"]])
        seen[row["problem_id"]] += 1
    for part in range(nodes.parts):
        yield f"part {part + 1}", [place % nodes.parts == part for place in places]


def merged(sets: Iterable[ScoredSet]) -> ScoredSet:
    """Return rollouts that were scored by several datasets as one set."""
    found = [*sets]
    return replace(found[0], rollouts=[one for part in found for one in part.rollouts])


def as_programs(rows: Iterable[Row]) -> Iterator[Row]:
    """Rewrite rollouts as programs, with their answers; leave out those without equations."""
    for row in rows:
        code = as_program(row["response"])
        if code is not None:
            yield row | {"response": f"{code}\n#### {row['final_answer']}"}
