"""``explain``: what is marked is what was found, and the score says how it came about."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensuspr.client import LocalClient
from consensuspr.score_log import ScoreLog, keep_dataset
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer, rollout_from_row
from consensuspr.scoring.explained import _hint, mark_hits
from consensuspr.scoring.marks import Mark
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Rollout, Sample, ScoreOptions
from tests.linear import assert_linear
from tests.rows import write_rows

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer
    from tests.commands import Run


def test_marks_hits_names_nodes_and_shows_the_sum(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", "wrong")
    assert done.code == 0
    assert "⟦₁4·12 = 48₁⟧ and 48 − 39 = 10." in done.out
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "1 ✓ total 4*12=48 statement" in lines
    assert "2 ✗ rest (final answer) not found: 48-39=9" in lines
    assert "NCR 0.500 = 1 of 2 nodes" in lines
    assert "Guard 1.000: 1 result of calculations (max 12), 5 numbers (max 26)" in lines
    assert "TPN 10.0 tokens per node" in lines
    assert "Reward 0.250 = 0.5 · Acc + 0.5 · NCR" in lines
    assert "Acc 0 (answer '10', expected '9')" in lines


EQUATIONS = [
    # Expressions of a node, what stands in the response, and the words that are shown.
    ("b=8", "$⟦b = 21 - 13 = 8⟧$", "b = 21 - 13 = 8"),
    ("V=216", "$$⟦V = s^3 = 6^3 = 216⟧.$$", "V = s^3 = 6^3 = 216"),
    (r"\{3,5,7\}", "divisors left: $⟦7, 5$ and $3⟧$.", "7, 5 and 3"),
    ("2, 4, 9, 11", r"it is in $\{⟦9, 2, 11, 4⟧\}$, so go on", "9, 2, 11, 4"),
    (r"N \equiv 5 \pmod{13}", r"$⟦N \bmod 13 = 5⟧$", r"N \bmod 13 = 5"),
    ("p=2, q=3", "we get $⟦q = 3$ and $p = 2⟧$", "q = 3 and p = 2"),
    ("x^2+3xy-2y=41", "$⟦u^2 + 3uv - 2v = 41⟧$", "u^2 + 3uv - 2v = 41"),
    (r"\boxed{117}", r"so ⟦\boxed{117}⟧", ""),
]


def test_equal_equations_are_shown_in_their_own_words(run: Run, tmp_path: Path) -> None:
    nodes = [{"expressions": [text]} for text, _, _ in EQUATIONS]
    problem = {"problem_id": "p", "problem": "Find it.", "ground_truth": "117", "nodes": nodes}
    marked = "\n\n".join(text for _, text, _ in EQUATIONS)
    row = {"problem_id": "p", "response": re.sub("[⟦⟧]", "", marked)}
    files = write_rows(tmp_path / "r.jsonl", [row]), write_rows(tmp_path / "d.jsonl", [problem])
    out = run("explain", files[0], "--dataset", files[1]).out
    assert marked in re.sub("(?<=⟦)[₀-₉]+|[₀-₉]+(?=⟧)", "", out)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for number, (text, _, words) in enumerate(EQUATIONS, start=1):
        at = next(n for n, line in enumerate(lines) if line.startswith(f"{number} ✓ {text} "))
        assert lines[at].endswith("equation" if words else "pattern")
        assert (lines[at + 1] == f"found as an equal equation: {words}") is bool(words)
    assert max(map(len, out.splitlines())) <= 100
    out = run("explain", files[0], "--dataset", files[1], "--no-statements").out
    assert "equation" not in out and "NCR    0.125 = 1 of 8 nodes" in out


HINT = " (the value {} occurs, but not this calculation)"
TRAINED = "In training the reward would be 0.000: the response has no marked answer"


@pytest.mark.parametrize(
    ("expression", "response", "hint", "trained"),
    [
        ("24*115=2760", "2+7=9, in all $2{,}760$ boxes", HINT.format("2760"), True),
        ("24*115=2760 L", "2+7=9, in all 2,760. Answer: 9", HINT.format("2760"), False),
        ("24*115=2760", "2+7=9, in all 12760 and 276.0", "", True),
        ("24*115=2760", "2+7=9, x_{2760}, x^2760, 2760x and x2760", "", True),
        ("24/4=6", "2+7=9, 24 : 4 = 6", " (24:4 occurs, but ':' is not read as division)", True),
        ("24/4=6", "2+7=9, 8:24 :4 = 6", " (24:4 occurs, but ':' is not read as division)", True),
        ("24/4=6", "2+7=9, 124:4, 24:46, 6", HINT.format("6"), True),
        ("h=2", "2+7=9, the square of $2$", " (the value 2 occurs, but not as h)", True),
        ("16*2=32", "2+7=9, 32 / 5", HINT.format("32"), True),
        ("h=2", "2+7=9, 2 / 5 and 7 * 2", "", True),  # operands of one digit
        ("h=1", "1. 2+7=9", "", True),  # the number of a list
        ("24*115=8", "2+7=9, 8 as given", "", True),
        ("(x+6)(x-2)=7", "2+7=9, 7 cows", "", True),
        (r"\frac{3}{8}=\frac{9}{24}", "2+7=9", "", True),
    ],
)
def test_a_value_in_prose_and_a_missing_mark_are_explained(
    run: Run, tmp_path: Path, expression: str, response: str, hint: str, trained: bool
) -> None:
    nodes = [{"label": "a", "expressions": texts} for texts in ([expression], ["2+7=9"])]
    problem = {"problem_id": "p", "problem": "8 pens", "ground_truth": "1", "nodes": nodes}
    dataset = write_rows(tmp_path / "d.jsonl", [problem])
    rollouts = write_rows(tmp_path / "r.jsonl", [{"problem_id": "p", "response": response}])
    out = run("explain", rollouts, "--dataset", dataset).out
    assert f"not found: {expression}{hint}\n" in re.sub(" +\n", "\n", out)
    assert (TRAINED in out) is trained
    assert (
        "In training"
        not in run("explain", rollouts, "--dataset", dataset, "--unanswered", "ncr").out
    )
    score = run("score", rollouts, "--dataset", dataset, "--output", tmp_path / "o.jsonl").out
    assert ("in training 1 rollout would get a lower reward" in score) is trained


@pytest.mark.parametrize("repeated", ["9", "1 ", "1/", "1 / 1+", "24:4 "])
def test_hints_take_linear_time(repeated: str) -> None:
    def hint(text: str) -> str:
        return _hint(f"{text}+2=5", f"5 and {text}", [5.0])

    assert_linear(hint, repeated.__mul__, 1 << 9)


def test_full_shows_all_expressions_of_a_node(run: Run, tmp_path: Path) -> None:
    node = {"expressions": [*"abcde"]}
    dataset = write_rows(tmp_path / "d.jsonl", [{"problem_id": "p", "nodes": [node]}])
    rollouts = write_rows(tmp_path / "r.jsonl", [{"problem_id": "p", "response": "x"}])
    for full, shown in (("--no-full", "a | b | c | 2 more"), ("--full", "a | b | c | d | e")):
        out = run("explain", rollouts, "--dataset", dataset, full).out
        assert f"not found: {shown} " in out


def test_thoughts_are_shown_and_not_scored(run: Run, problems: Path, tmp_path: Path) -> None:
    rows = [
        {"problem_id": "p1", "response": f"{thought}4*12=48, {mark}so 48-39=9. Answer: 9"}
        for thought, mark in (("", "</think>"), ("hm", ""))
    ]
    path = tmp_path / "thinking.jsonl"
    write_rows(path, rows)
    ended, endless = (
        run("explain", path, "--dataset", problems, "--row", row, "--after-think").out
        for row in (1, 2)
    )
    assert "4*12=48, </think>so ⟦₂48-39=9₂⟧. Answer: 9" in ended
    assert "Scored only the text after the last </think>, from character 18 on" in ended
    assert "Reward 0.750" in ended
    assert "hm4*12=48, so 48-39=9. Answer: 9" in endless
    assert "Scored nothing: the response has no </think>" in endless
    assert "Reward 0.000" in endless


def test_model_text_cannot_steer_the_terminal(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", "hostile")
    assert "\x1b" not in done.out
    assert "\\x1b[2J\\x1b]0;owned\\x07 ⟦₁c^2=9+16₁⟧" in done.out


@pytest.mark.parametrize(
    ("rollout_id", "status", "acc"),
    [("bare", "Status NO_NODES: ", "Acc 1"), ("lost", "Status UNKNOWN_PROBLEM: ", "Acc unknown")],
)
def test_an_unscorable_rollout_has_a_reason(
    run: Run, problems: Path, rollouts: Path, rollout_id: str, status: str, acc: str
) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", rollout_id)
    assert done.code == 0
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    for start in (status, acc, "Reward unknown"):
        assert [line for line in lines if line.startswith(start)]


@pytest.mark.parametrize(
    ("asked", "titles"),
    [
        # What has no reward comes first; then the lowest, and of equals the first.
        (["--worst", "9"], ["bare", "lost", "wrong", "no-source", "hostile", "right"]),
        ([], ["bare"]),
        (["--problem", "p1"], ["wrong"]),
        (["--problem", "p1", "--worst", "2"], ["wrong", "right"]),
        (["--best", "9"], ["right", "no-source", "hostile", "wrong", "bare", "lost"]),
        (["--problem", "p1", "--best", "1"], ["right"]),
        (["--wrong", "--best", "9"], ["no-source", "hostile", "wrong"]),
    ],
)
def test_the_worst_or_best_of_a_file_of_rollouts(
    run: Run, problems: Path, rollouts: Path, asked: list[str], titles: list[str]
) -> None:
    done = run("explain", rollouts, "--dataset", problems, *asked)
    assert done.code == 0, done.err
    assert re.findall(r"^(.+), problem p\w+$", done.out, re.M) == titles
    assert ("\n1 of " in done.out) is (
        titles in (["bare"], ["right"]) or asked == ["--problem", "p1"]
    )


def test_json_names_the_samples_alike(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path
) -> None:
    here = ["--dataset", problems, "--json"]
    (of_rollouts,) = json.loads(run("explain", rollouts, "--row", "3", *here).out)
    rollout = Rollout("p1", "4*12=48. Answer: 10", "9", rollout_id="g1_0")
    index = DatasetIndex.load(problems)
    keep_dataset(tmp_path / "run", index)
    log = ScoreLog(tmp_path / "run", "trainer")
    options = ScoreOptions(RewardSpec.linear(0.5))
    with AnswerVerifier() as verifier:
        scores, identity = Scorer({"default": index}, verifier=verifier).score([rollout], options)
    rollout.sample = Sample(b"k" * 16, 3, "g1", "train")
    log.put_sample(rollout, scores[0], identity, options, "server", -0.1, 0.15)
    log.close()
    (of_run,) = json.loads(run("explain", tmp_path / "run", "--json").out)
    assert list(of_rollouts) == list(of_run)
    names = list(of_run)[: list(of_run).index("score")]
    assert [[one[name] for name in names] for one in (of_rollouts, of_run)] == [
        ["p2", None, "row 3", "no-source", None, None, None, None],
        ["p1", b"k".hex() * 16, None, "g1_0", 3, "train", "g1", 0.15],
    ]


def test_of_a_step_with_validation_one_split_can_be_asked_for(
    run: Run, problems: Path, tmp_path: Path
) -> None:
    index, options = DatasetIndex.load(problems), ScoreOptions(RewardSpec.linear(0.5))
    keep_dataset(tmp_path, index)
    with closing(ScoreLog(tmp_path, "trainer")) as log, AnswerVerifier() as verifier:
        scorer = Scorer({"default": index}, verifier=verifier)
        for key, (split, answer) in enumerate({"train": "9", "test": "11"}.items()):
            sample = Sample(bytes([key]) * 16, 4, "g", split)
            rollout = Rollout("p1", f"4*12=48. Answer: {answer}", "9", sample=sample)
            [score], identity = scorer.score([rollout], options)
            log.put_sample(rollout, score, identity, options, "server", 0.0, score.reward)
    both = run("explain", tmp_path, "--step", "4", "--worst", "9").out
    assert re.findall(r"step 4, split (.+), problem p1", both) == ["test", "train"]
    best = run("explain", tmp_path, "--best", "1").out
    assert re.findall(r"step 4, split (.+), problem p1", best) == ["train"]
    wrong = run("explain", tmp_path, "--wrong", "--best", "9").out
    assert re.findall(r"step 4, split (.+), problem p1", wrong) == ["test"]
    assert "not both" in run("explain", tmp_path, "--best", "1", "--worst", "1").err
    train = run("explain", tmp_path, "--step", "4", "--split", "train", "--worst", "9").out
    assert re.findall(r"split (.+), problem", train) == ["train"]
    none = run("explain", tmp_path, "--split", "dev")
    assert none.code == 2
    assert "has no sample with split 'dev'" in none.err
    neither = run("explain", tmp_path, "--step", "9", "--split", "train")
    assert (neither.code, "internal error" in neither.err) == (2, False)


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--reward", "max"], "--reward"), (["--no-guard"], "--guard"), (["--row", "1"], "--row")],
)
def test_a_run_takes_no_options_of_scoring(
    run: Run, tmp_path: Path, options: list[str], named: str
) -> None:
    done = run("explain", tmp_path, "--color", "never", *options)
    assert done.code == 2
    assert f"{named} has no effect on a run" in done.err


def test_a_server_explains_the_same(run: Run, server: RunningServer, rollouts: Path) -> None:
    chosen = ("explain", rollouts, "--dataset", server.dataset, "--rollout-id", "right")
    here = run(*chosen)
    there = run(*chosen, "--address", server.address)
    assert (there.code, there.out) == (0, here.out)


def test_an_explanation_is_printed_in_python_as_by_the_command(
    run: Run, problems: Path, rollouts: Path
) -> None:
    rows = [json.loads(line) for line in rollouts.read_text().splitlines()]
    row = next(row for row in rows if row.get("rollout_id") == "wrong")
    with LocalClient(problems) as client:
        printed = str(client.explain(rollout_from_row(row)))
    out = run("explain", rollouts, "--dataset", problems, "--rollout-id", "wrong").out
    lines = [" ".join(line.split()) for line in out.splitlines()[2:]]
    assert [" ".join(line.split()) for line in printed.splitlines()] == [
        line.replace(", expected '9'", "") for line in lines
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--group", "g"], "--group has no effect on a file of rollouts"),
        (["--problem", "p7"], "has no sample with problem_id 'p7'"),
        (["--rollout-id", "wrnog"], "with rollout_id 'wrnog'; did you mean 'wrong'?"),
        (["--rollout-id", "wrong", "--row", "6"], "has no sample with rollout_id 'wrong', row 6"),
    ],
)
def test_bad_usage(
    run: Run, problems: Path, rollouts: Path, options: list[str], message: str
) -> None:
    done = run("explain", rollouts, "--dataset", problems, *options)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["explain", "curves", "replay", "watch"])
def test_a_path_that_does_not_exist_has_one_message(run: Run, tmp_path: Path, command: str) -> None:
    for near, hint in ((None, ""), ("scored.jsonl", "; did you mean 'scored.jsonl'?")):
        if near:
            (tmp_path / near).touch()
        done = run(command, tmp_path / "score.jsonl")
        message = f"{tmp_path / 'score.jsonl'}: no such file or directory{hint}\n"
        assert (done.code, done.err) == (2, f"consensuspr: error: {message}")


@pytest.mark.parametrize("command", ["curves", "replay"])
def test_a_file_is_no_score_log(run: Run, rollouts: Path, command: str) -> None:
    done = run(command, rollouts)
    assert done.code == 2
    assert f"for a file of scored rollouts run consensuspr watch {rollouts}" in done.err


@pytest.mark.parametrize(
    ("response", "marks", "shown"),
    [
        ("so 5*2=10.", [Mark(3, 9, 1)], "so ⟦₁5*2=10₁⟧."),
        ("ab", [Mark(0, 1, 1), Mark(1, 2, 12)], "⟦₁a₁⟧⟦₁₂b₁₂⟧"),
        ("5*2=10", [Mark(0, 6, 2), Mark(0, 6, 1)], "⟦₁,₂5*2=10₁,₂⟧"),
        ("abcdef", [Mark(0, 4, 1), Mark(2, 6, 2)], "⟦₁ab⟦₂cd₁⟧ef₂⟧"),
        ("\x1b[2J 7", [Mark(5, 6, 3)], "\\x1b[2J ⟦₃7₃⟧"),
        ("[bold]x[/bold]", [], "[bold]x[/bold]"),  # no markup of rich's is obeyed
    ],
)
def test_marks_without_colour(response: str, marks: list[Mark], shown: str) -> None:
    assert mark_hits(response, marks, brackets=True).plain == shown
