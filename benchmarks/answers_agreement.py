"""Agreement of the answer check with labelled rollouts, and what it costs.

Reads rollout files (JSONL, JSONL.gz or Parquet) whose rows have ``ground_truth``,
``response`` and a label ``correct``, verifies every response, and prints for each file how
often verdict and label agree, which share was decided without SymPy, and the median time of
one cold check (memoised ground truths and answers forgotten before each).

    python benchmarks/answers_agreement.py ../shared/data/rollouts/*.jsonl.gz
    python benchmarks/answers_agreement.py --rule dapo --show 20 FILE
    python benchmarks/answers_agreement.py --conformance ../shared/conformance/answers.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from consensuspr.data import read_rollouts
from consensuspr.scoring.answers import AnswerVerifier, Verdict
from consensuspr.scoring.answers.forms import forget_forms

# Methods that need no worker process.
_SLOW_METHODS = frozenset(["symbolic", "budget", "memory", "crash", "load", "deadline"])
_SHOWN_CHARS = 60


class Case(NamedTuple):
    """One labelled response."""

    name: str
    ground_truth: str
    response: str
    correct: bool


class Result(NamedTuple):
    """What the check made of one file."""

    name: str
    cases: list[Case]
    verdicts: list[Verdict]
    median_us: float

    @property
    def disagreements(self) -> list[tuple[Case, Verdict]]:
        """The cases whose label is not what the check says; undecided counts as wrong."""
        pairs = zip(self.cases, self.verdicts, strict=True)
        return [(case, said) for case, said in pairs if bool(said.correct) != case.correct]

    @property
    def agreement(self) -> float:
        """Share of cases on which label and check agree."""
        return 1.0 - len(self.disagreements) / len(self.cases)

    @property
    def without_sympy(self) -> float:
        """Share of cases decided in the calling thread."""
        slow = sum(verdict.method in _SLOW_METHODS for verdict in self.verdicts)
        return 1.0 - slow / len(self.cases)


def read_labelled(path: Path) -> list[Case]:
    """Return the rollouts of a file that carry a ground truth and a label."""
    cases = []
    for row in read_rollouts(path):
        truth, label = row.get("ground_truth"), row.get("correct")
        if isinstance(truth, str) and isinstance(label, bool):
            cases.append(Case(str(row.get("rollout_id", "")), truth, str(row["response"]), label))
    return cases


def read_conformance(path: Path) -> list[Case]:
    """Return the pairs of a conformance file."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Case(row["id"], row["gold"], row["pred"], row["equal"]) for row in rows]


def check(name: str, cases: list[Case], verifier: AnswerVerifier, rule: str) -> Result:
    """Verify all cases, then time each once more."""
    verdicts = verifier.verify_batch(
        [case.ground_truth for case in cases], [case.response for case in cases], rule
    )
    times_us = []
    for case in cases:
        forget_forms()
        started = time.perf_counter()
        verifier.verify(case.ground_truth, case.response, rule)
        times_us.append((time.perf_counter() - started) * 1e6)
    return Result(name, cases, verdicts, statistics.median(times_us))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="rollout files")
    parser.add_argument("--conformance", type=Path, help="a file of (gold, pred, equal) pairs")
    parser.add_argument("--rule", default="auto", choices=["auto", "dapo", "boxed", "gsm8k"])
    parser.add_argument("--show", type=int, default=0, help="disagreements to list by file")
    options = parser.parse_args(arguments)
    console = Console()
    with AnswerVerifier() as verifier:
        sources = [(path.name, read_labelled(path)) for path in options.files]
        if options.conformance is not None:
            sources.append((options.conformance.name, read_conformance(options.conformance)))
        results = [check(name, cases, verifier, options.rule) for name, cases in sources if cases]
    console.print(_table(results, options.rule))
    for result in results:
        methods = Counter(verdict.method for verdict in result.verdicts).most_common()
        console.print(f"{result.name}: {', '.join(f'{name} {count}' for name, count in methods)}")
        for case, verdict in result.disagreements[: options.show]:
            console.print(_line(result.name, case, verdict), highlight=False, markup=False)


def _table(results: list[Result], rule: str) -> Table:
    table = Table(title=f"rule {rule}")
    for heading in ("file", "responses", "agreement", "without SymPy", "median µs"):
        table.add_column(heading, justify="left" if heading == "file" else "right", no_wrap=True)
    for result in results:
        table.add_row(
            result.name,
            str(len(result.cases)),
            f"{result.agreement:.2%}",
            f"{result.without_sympy:.2%}",
            f"{result.median_us:.1f}",
        )
    return table


def _line(name: str, case: Case, verdict: Verdict) -> str:
    end = case.response[-_SHOWN_CHARS:]
    return (
        f"{name} {case.name}: label {case.correct}, check {verdict.correct} ({verdict.method}); "
        f"gold {case.ground_truth!r}, answer {verdict.answer!r}, end {end!r}"
    )


if __name__ == "__main__":
    main()
