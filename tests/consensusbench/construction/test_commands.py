"""The commands ``extract``, ``refine`` and ``build``, with the real stages."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from consensuspr.core import normalize
from consensuspr.scoring import DatasetIndex
from tests.consensusbench.extraction.conftest import NO_CHANGES, node, reply_text
from tests.consensusbench.openai_server import Asked, OpenAIServer, Refuse, Say
from tests.rows import read_rows, write_rows

MODELS = ("ada", "bea", "cyd", "dot")
WORDINGS = (
    "Each day {a} * {b} = {ab} pens are packed. In {c} days that is {ab} * {c} = {abc}.",
    "{b}*{a} = {ab} pens a day.\nThen {c} × {ab} = {abc} pens.",
    "They pack ${a} \\times {b} = {ab}$ daily, so ${ab} \\cdot {c} = {abc}$ in all.",
    "{a}x{b}={ab}, and {ab}x{c}={abc}.",
)


def sizes(number: int) -> tuple[int, int, int]:
    """Return boxes, pens in each, and days."""
    return 11 + number, 14 + 2 * number, 5 + number % 3


def shop(number: int) -> dict[str, Any]:
    """Return a problem about a shop of its own."""
    a, b, c = sizes(number)
    text = f"A shop packs {a} boxes of {b} pens each day. How many pens does it pack in {c} days?"
    return {
        "problem_id": f"shop-{number}",
        "data_source": "shops",
        "problem": text,
        "ground_truth": str(a * b * c),
        "split": "train",
    }


def solutions(number: int) -> list[dict[str, Any]]:
    """Return a rollout of each model, the last of them wrong."""
    a, b, c = sizes(number)
    return [
        {
            "problem_id": f"shop-{number}",
            "model": model,
            "rollout_id": f"{model}-{number}",
            "response": wording.format(a=a, b=b, c=c, ab=a * b, abc=a * b * c)
            + f"\nAnswer: {a * b * c + (model == 'dot')}",
        }
        for model, wording in zip(MODELS, WORDINGS, strict=True)
    ]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of eight problems."""
    folder = tmp_path_factory.mktemp("problems")
    return str(write_rows(folder / "problems.jsonl", map(shop, range(8))))


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of their rollouts, but for the last problem."""
    rows = [row for number in range(7) for row in solutions(number)]
    return str(write_rows(tmp_path_factory.mktemp("rollouts") / "rollouts.jsonl", rows))


@pytest.fixture(scope="module")
def built(
    problems: str, rollouts: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A dataset that ``build`` made of them, and the printed report."""
    output = tmp_path_factory.mktemp("built") / "dataset.jsonl"
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["build", rollouts, "--problems", problems, "--output", str(output)]) == 0
    return output, printed.getvalue()


def test_build_makes_a_dataset_and_prints_a_report(built: tuple[Path, str]) -> None:
    output, printed = built
    lines = printed.splitlines()
    assert lines[1].split() == ["shops", "7", "14", "2.00"]
    assert "28 rollouts: 21 correct, 7 not correct; 21 correct ones compared" in lines
    assert "left out: 1 problem without a rollout (first: 'shop-7'" in printed
    digest = DatasetIndex.load(output).digest
    assert lines[-1] == f"{output}: 7 problems, 7 with new weights, digest {digest}"
    [first, *_] = read_rows(output)
    nodes = [(normalize(node["label"]), node["support"]) for node in first["nodes"]]
    assert nodes == [("11*14=154", 3), ("the answer is 770", 3)]
    provenance = first["metadata"]["construction"]["provenance"]
    assert provenance["extraction"]["extractor"] == "rules"
    assert provenance["refinement"]["max_nodes"] == 9


def test_thresholds_of_refine_need_no_new_extraction(
    problems: str, rollouts: str, built: tuple[Path, str], tmp_path: Path
) -> None:
    candidates, refined = str(tmp_path / "c.jsonl"), tmp_path / "r.jsonl"
    assert main(["extract", rollouts, "--problems", problems, "--output", candidates]) == 0
    assert main(["refine", candidates, "--output", str(refined)]) == 0
    weighed = ["build", rollouts, "--budgets", str(refined), "--output", str(tmp_path / "w.jsonl")]
    assert main(weighed) == 0
    assert (tmp_path / "w.jsonl").read_bytes() == built[0].read_bytes()
    audit = built[0].with_name("dataset.audit.jsonl")
    assert (tmp_path / "r.audit.jsonl").read_bytes() == audit.read_bytes()
    arguments = ["--max-nodes", "1", "--min-nodes", "1", "--output", str(refined)]
    assert main(["refine", candidates, *arguments]) == 0
    assert {len(row["nodes"]) for row in read_rows(refined)} == {1}


def question(asked: Asked) -> str:
    """Return the first question of a conversation."""
    return str(asked.body["messages"][1]["content"])


def reply(asked: Asked) -> Say:
    """Return nodes for the problem that a prompt is about, and no changes to them."""
    for number in range(8):
        a, b, c = sizes(number)
        if f"packs {a} boxes" in question(asked):
            texts = (f"{a} * {b} = {a * b}", "1+1=2", f"{a * b} * {c} = {a * b * c}")
            return (
                Say(reply_text(*map(node, texts)))
                if asked.prompt == question(asked)
                else NO_CHANGES
            )
    raise AssertionError(asked.prompt)


def test_a_model_extracts_and_nothing_is_paid_for_twice(
    problems: str,
    rollouts: str,
    tmp_path: Path,
    openai_server: OpenAIServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("openai", reason="openai is not installed: the extra consensusbench")
    output = tmp_path / "dataset.jsonl"
    command = [
        "build", rollouts, "--problems", problems, "--output", str(output), "--extractor", "llm",
        "--model", "m", "--base-url", openai_server.url, "--no-progress", "--temperature", "server",
    ]  # fmt: skip

    def last_ones_slowly(asked: Asked) -> Say | Refuse:
        if any(f"packs {boxes} boxes" in question(asked) for boxes in (15, 16, 17)):
            return replace(reply(asked), after_s=0.5)
        return Refuse(401)

    openai_server.respond = last_ones_slowly
    assert main(command) == 1
    assert not output.exists()
    # The first ones were refused; what was being replied meanwhile was waited for, and kept.
    assert len(openai_server.delivered) == 6
    openai_server.respond = reply
    assert main(command) == 0
    assert len(openai_server.delivered) == 14
    [first, *_] = read_rows(output)
    assert [normalize(node["label"]) for node in first["nodes"]] == [
        "11*14=154",
        "the answer is 770",
    ]
    provenance = first["metadata"]["construction"]["provenance"]
    assert provenance["extraction"]["model"]["name"] == "m"
    assert "prompt_digest" in provenance["extraction"]
    assert all("temperature" not in asked.body for asked in openai_server.asked)
    capsys.readouterr()
    # With other thresholds the replies are there still.
    openai_server.respond = lambda asked: Refuse(500)
    assert main([*command, "--max-nodes", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problems"]["written"] == 7
    assert (report["usage"]["requests"], report["usage"]["refused"]) == (14, {})
    assert main([*command, "--max-nodes", "2"]) == 0
    assert re.search(r"m: 14 replies, [\d,]+ tokens in, [\d,]+ out", capsys.readouterr().out)
