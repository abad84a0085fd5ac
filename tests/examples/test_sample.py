"""The bundled sample: sound rows, true arithmetic, and every kind of rollout it promises.

The figures asserted here are those that a newcomer sees in the demo: sound solutions reach
nearly all nodes in every style, wrong ones few, a bare answer next to none.  Nodes of the
competition problems are made by ``consensusbench build``: solutions by other ways miss some.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from consensuspr.client import LocalClient
from consensuspr.core import normalize
from consensuspr.data import Problem, read_problems, read_rollouts
from consensuspr.data.schema import NODE_TYPES
from consensuspr.scoring import Score, rollout_from_row
from tests.arithmetic import exact

SOURCES = (
    "sample/algebra",
    "sample/arithmetic",
    "sample/counting",
    "sample/geometry",
    "sample/number-theory",
)
COMPETITION = "sample/competition"
MISMATCHES = ("almost_correct", "format_error", "direct_answer", "redundant_thinking")
WRONG_CASES = ("almost_correct", "wrong")
# Rollouts of each kind: of the problems with nodes by hand, and of the competition problems.
COUNTS = {"sound": 150, "wrong": 50} | dict.fromkeys(MISMATCHES, 25)
COMPETITION_COUNTS = {"sound": 70, "wrong": 20} | dict.fromkeys(MISMATCHES, 10)
del COMPETITION_COUNTS["format_error"]
STYLES = ("sample-formal", "sample-latex", "sample-markdown", "sample-terse", "sample-think")


@dataclass(frozen=True)
class Sample:
    """Both files of the sample, and the scores of its rollouts."""

    folder: Path
    problems: dict[str, Problem]
    rollouts: list[dict[str, Any]]

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Per rollout id."""
        with LocalClient(self.folder / "dataset.jsonl") as client:
            scores = client.score([rollout_from_row(row) for row in self.rollouts])
        return {row["rollout_id"]: score for row, score in zip(self.rollouts, scores, strict=True)}

    def of(self, *cases: str, competition: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the rollouts of these cases."""
        for row in self.rollouts:
            if row["case"] in cases and (row["data_source"] == COMPETITION) == competition:
                yield row

    def mean_ncr(self, *cases: str, competition: bool = False) -> float:
        """Mean share of nodes reached by the rollouts of these cases, in [0, 1]."""
        return mean_ncr(self.scores, self.of(*cases, competition=competition))


def mean_ncr(scores: dict[str, Score], rows: Iterable[dict[str, Any]]) -> float:
    return mean(mean(scores[row["rollout_id"]].matched) for row in rows)


@pytest.fixture(scope="module")
def sample(repository: Path) -> Sample:
    folder = repository / "examples" / "sample"
    problems = {problem.problem_id: problem for problem in read_problems(folder / "dataset.jsonl")}
    return Sample(folder, problems, list(read_rollouts(folder / "rollouts.jsonl")))


def test_problems_have_labelled_nodes_in_several_wordings(sample: Sample) -> None:
    sources = Counter(problem.data_source for problem in sample.problems.values())
    assert sources == dict.fromkeys((*SOURCES, COMPETITION), 10)
    correct = Counter(row["problem_id"] for row in sample.rollouts if row["correct"])
    types = set()
    for key, problem in sample.problems.items():
        assert problem.problem and problem.ground_truth and problem.metadata["subject"]
        assert problem.metadata["level"] in range(1, 6)
        by_hand = problem.data_source != COMPETITION
        assert 2 <= len(problem.nodes) <= (8 if by_hand else 12), key
        assert {node.is_final for node in problem.nodes} == {True, False}, key
        for node in problem.nodes:
            types.add(node.type)
            assert node.label, (key, node.node_id)
            assert 1 <= len(set(node.expressions)) == len(node.expressions), key
            assert not by_hand or 2 <= len(node.expressions) <= 5, key
            assert all(map(normalize, node.expressions))
            assert node.support is not None and 1 <= node.support <= correct[key]
    assert types == set(NODE_TYPES)


def test_the_environment_has_problems_of_each_source(sample: Sample) -> None:
    file = sample.folder.parent / "consensus_nodes" / "consensus_nodes" / "sample.jsonl"
    own = list(read_problems(file))
    assert own == [sample.problems[problem.problem_id] for problem in own]
    assert Counter(problem.data_source for problem in own) == dict.fromkeys(
        (*SOURCES, COMPETITION), 2
    )


def test_every_problem_has_its_styles_and_cases(sample: Sample) -> None:
    for counts, competition in ((COUNTS, False), (COMPETITION_COUNTS, True)):
        of_kind = sample.of("sound", "wrong", *MISMATCHES, competition=competition)
        assert Counter(row["case"] for row in of_kind) == counts
    assert len({row["rollout_id"] for row in sample.rollouts}) == len(sample.rollouts) == 420
    for key, problem in sample.problems.items():
        rows = [row for row in sample.rollouts if row["problem_id"] == key]
        assert {row["model"] for row in rows} == set(STYLES), key
        for row in rows:
            assert (row["problem"], row["ground_truth"]) == (problem.problem, problem.ground_truth)
            assert row["num_tokens"] == pytest.approx(len(row["response"]) / 3.6, abs=1)
            assert row["correct"] == (row["case"] not in WRONG_CASES)


def test_the_readme_counts_are_right(sample: Sample) -> None:
    text = (sample.folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|(?: `[^|]+\|)? (\d+) \|", text, re.MULTILINE)
    by_hand = [one for one in sample.problems.values() if one.data_source != COMPETITION]
    nodes = [node for problem in by_hand for node in problem.nodes]
    ways = sum(len(node.expressions) for node in nodes)
    assert {name: int(count) for name, count in rows} == {
        "dataset.jsonl": len(sample.problems),
        "rollouts.jsonl": len(sample.rollouts),
        **Counter(row["case"] for row in sample.rollouts),
    }
    assert f"{len(nodes)} nodes with {ways} ways" in text


def test_no_node_states_false_arithmetic(sample: Sample) -> None:
    checked = 0
    for problem in sample.problems.values():
        for node in problem.nodes:
            for expression in node.expressions:
                if "=" in expression and re.fullmatch(r"[0-9.+\-*/^()= ]+", expression):
                    sides = [exact_value(side) for side in expression.split("=")]
                    assert len(set(sides)) == 1, (problem.problem_id, expression)
                    checked += 1
    assert checked > 100


def test_every_node_is_reached_by_a_right_rollout(sample: Sample) -> None:
    reached: dict[str, list[bool]] = {}
    for row in (*sample.of("sound"), *sample.of("sound", "redundant_thinking", competition=True)):
        flags = sample.scores[row["rollout_id"]].matched
        before = reached.get(row["problem_id"], [False] * len(flags))
        reached[row["problem_id"]] = [a or b for a, b in zip(before, flags, strict=True)]
    assert len(reached) == 60 and all(map(all, reached.values()))


def test_coverage_tells_the_cases_apart(sample: Sample) -> None:
    assert sample.mean_ncr("sound") >= 0.85
    assert sample.mean_ncr("format_error") >= 0.85
    assert sample.mean_ncr("redundant_thinking") >= 0.85
    assert sample.mean_ncr("almost_correct") >= 0.6
    assert sample.mean_ncr("direct_answer") <= 0.15
    assert sample.mean_ncr("wrong") <= 0.25


def test_coverage_tells_the_cases_of_the_competition_problems_apart(sample: Sample) -> None:
    right = ("sound", "redundant_thinking")
    assert sample.mean_ncr(*right, competition=True) >= 0.55
    assert sample.mean_ncr("wrong", competition=True) <= 0.2
    assert sample.mean_ncr("direct_answer", competition=True) <= 0.2  # the final node
    for key in {row["problem_id"] for row in sample.of("wrong", competition=True)}:
        means = [
            mean_ncr(sample.scores, (row for row in rows if row["problem_id"] == key))
            for rows in (sample.of(*right, competition=True), sample.of("wrong", competition=True))
        ]
        assert means[0] > means[1] + 0.1, key


def test_equal_equations_are_found_in_the_competition_problems(sample: Sample) -> None:
    rows = list(sample.of("sound", "redundant_thinking", competition=True))
    found = [row for row in rows if "equation" in sample.scores[row["rollout_id"]].channels]
    assert len(found) >= len(rows) // 2
    assert len({row["problem_id"] for row in found}) >= 9
    assert {row["model"] for row in found} == set(STYLES)


@pytest.mark.parametrize("style", STYLES)
def test_no_style_is_at_a_disadvantage(sample: Sample, style: str) -> None:
    for competition, least in ((False, 0.85), (True, 0.45)):
        rows = sample.of("sound", competition=competition)
        of_style = (row for row in rows if row["model"] == style)
        assert mean_ncr(sample.scores, of_style) >= least


def exact_value(text: str) -> Fraction:
    """Return the value of an arithmetic expression in ASCII, exactly."""
    explicit = re.sub(r"(?<=[0-9)])\s*\(", "*(", text.strip()).replace("^", "**")
    return exact(explicit)


def test_answers_verify_and_format_errors_fail_under_the_strict_rule(sample: Sample) -> None:
    with LocalClient(sample.folder / "dataset.jsonl") as client:
        rollouts = [rollout_from_row(row) for row in sample.rollouts]
        strict = client.score(rollouts, answer_rule="dapo")
    for row, by_dapo in zip(sample.rollouts, strict, strict=True):
        score = sample.scores[row["rollout_id"]]
        if row["case"] == "format_error":
            assert by_dapo.acc == 0, row["rollout_id"]
        else:
            assert score.acc == row["correct"], row["rollout_id"]
        if row["correct"]:  # or the demo would warn that the dataset lacks budgets
            assert score.guard == 1.0, row["rollout_id"]


@pytest.mark.slow
def test_the_commands_of_the_readme_make_the_dataset_again(sample: Sample, tmp_path: Path) -> None:
    shutil.copytree(sample.folder, tmp_path / "examples/sample")
    text = (sample.folder / "README.md").read_text(encoding="utf-8")
    [commands] = (block for block in text.split("```") if "grep -v" in block)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", commands], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True
    )
    made = (tmp_path / "examples/sample/dataset.jsonl").read_text(encoding="utf-8")
    assert made == (sample.folder / "dataset.jsonl").read_text(encoding="utf-8")
