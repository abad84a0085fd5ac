"""The command against a real server: what is asked, what is written, what is said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.cli import main
from tests.consensusbench.openai_server import (
    Asked,
    Behaviour,
    Garbage,
    HangUp,
    Refuse,
    Say,
)
from tests.consensusbench.sampling.conftest import answer_right, is_problem, right

if TYPE_CHECKING:
    from tests.consensusbench.openai_server import OpenAIServer
    from tests.consensusbench.sampling.conftest import Sample

Rows = Callable[[], list[dict[str, Any]]]
Problems = Callable[..., Path]
ModelsFile = Callable[..., Path]


def provenance(tmp_path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((tmp_path / "rollouts.jsonl.provenance.json").read_text())
    return value


def test_rows_hold_all_that_is_known_about_a_rollout(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
) -> None:
    openai_server.respond = lambda asked: Say(right(asked), reasoning="hm, an addition")
    models = models_file("m/1", more="price_in = 1\nprice_out = 2\nmax_tokens = 99")
    assert sample(write_problems(1), "--per-problem", 3, models=models, seed=7) == 0
    rows = rollouts()
    text = right(openai_server.asked[0])
    tokens = -(-(len(text) + 15) // 4)
    prompt = rows[0]["prompt_tokens"]
    assert rows[1] == {
        "problem_id": "p0",
        "rollout_id": "p0/m/1/1",
        "data_source": "additions",
        "problem": "What is 0 + 1000?",
        "ground_truth": "1000",
        "model": "m/1",
        "response": text,
        "num_tokens": tokens,
        "correct": True,
        "finish_reason": "stop",
        "sampling": {"temperature": 2.0, "top_p": None, "max_tokens": 99, "seed": 8},
        "prompt_tokens": prompt,
        "cost": pytest.approx((prompt + 2 * tokens) / 1e6),
        "reasoning": "hm, an addition",
    }
    assert [row["rollout_id"][-1] for row in rows] == ["0", "1", "2"]
    assert openai_server.asked[0].prompt.startswith("Solve the following math problem step by ")
    assert sorted(asked.seed or 0 for asked in openai_server.asked) == [7, 8, 9]


def test_wrong_rollouts_are_kept_and_flagged_and_the_models_share_the_work(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def respond(asked: Asked) -> Behaviour:
        return Say("Answer: 7") if asked.model == "weak" else Say(right(asked))

    openai_server.respond = respond
    assert sample(write_problems(4), models=models_file("a", "b", "weak")) == 0
    by_problem = Counter((row["problem_id"], row["correct"]) for row in rollouts())
    assert by_problem == {**{(f"p{n}", True): 5 for n in range(4)}} | {
        (f"p{n}", False): 2 for n in range(4)
    }
    models = Counter((row["model"], row["correct"]) for row in rollouts())
    assert models["weak", False] == 8
    assert models["a", True] + models["b", True] == 20 and min(models.values()) >= 8
    shown = capsys.readouterr().out
    assert "4 problems complete" in shown and "rollouts.jsonl: 28 rows" in shown
    assert provenance(tmp_path)["counts"]["models"]["weak"]["rollouts"] == 8


def test_only_correct_leaves_the_wrong_ones_out(
    sample: Sample, write_problems: Problems, rollouts: Rows, openai_server: OpenAIServer
) -> None:
    openai_server.respond = lambda asked: (
        Say("Answer: 7") if asked.number % 2 else Say(right(asked))
    )
    assert sample(write_problems(3), only_correct=True, max_attempts=40) == 0
    assert [row["correct"] for row in rollouts()] == [True] * 15


@pytest.mark.parametrize(
    ("reply", "correct"),
    [
        (Say("It is 1000.\nAnswer: 1000"), True),
        (Say("It is 1000", finish_reason="length"), False),
        (Say("I cannot say."), False),
        (Say(""), False),
        (Say("Answer: 1000", whole=True), True),
        (Say("Answer: 1000", usage=False), True),
        (Say(r"\boxed{10^3}"), True),
    ],
    ids=repr,
)
def test_the_real_verifier_decides(
    sample: Sample,
    write_problems: Problems,
    rollouts: Rows,
    openai_server: OpenAIServer,
    reply: Say,
    correct: bool,
) -> None:
    openai_server.respond = lambda asked: reply
    assert sample(write_problems(1), "--per-problem", 1, minimum=1, max_attempts=2) == 0
    rows = rollouts()
    assert [row["correct"] for row in rows] == ([True] if correct else [False, False])
    assert rows[0]["response"] == reply.text and rows[0]["finish_reason"] == reply.finish_reason


def test_the_rule_can_be_chosen(
    sample: Sample, write_problems: Problems, rollouts: Rows, openai_server: OpenAIServer
) -> None:
    openai_server.respond = lambda asked: Say("Answer: 1000")
    assert sample(write_problems(1), "--samples", 1, answer_rule="boxed") == 0
    assert [row["correct"] for row in rollouts()] == [False]


def test_too_few_correct_rollouts_are_reported(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def respond(asked: Asked) -> Behaviour:
        if is_problem(asked, 1):
            return Say("Answer: 7")
        late = is_problem(asked, 2) and (asked.seed or 0) >= 4
        return Say("Answer: 7") if late else Say(right(asked))

    openai_server.respond = respond
    assert sample(write_problems(3), max_attempts=6, seed=0) == 0
    counts = provenance(tmp_path)["counts"]
    assert counts["problems"] == {"complete": 1, "enough": 1, "few": 1}
    assert counts["few"] == {"p1": 0}
    assert "1 with too few correct rollouts (first: 'p1')" in capsys.readouterr().out


def test_exactly_k_samples_are_drawn_and_more_are_added_later(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
) -> None:
    openai_server.respond = lambda asked: (
        Say("Answer: 7") if is_problem(asked, 0) else Say(right(asked))
    )
    problems, models = write_problems(3), models_file("a", "b")
    assert sample(problems, "--samples", 2, models=models) == 0
    assert len(openai_server.asked) == 12
    assert sample(problems, "--samples", 4, models=models) == 0
    assert len(openai_server.asked) == 24
    counts = Counter((row["problem_id"], row["model"]) for row in rollouts())
    assert counts == {(f"p{n}", m): 4 for n in range(3) for m in "ab"}
    assert Counter(row["correct"] for row in rollouts()) == {True: 16, False: 8}
    # Back to fewer: what was paid for stays in the journal, the output holds what is asked for.
    assert sample(problems, "--samples", 1, models=models) == 0
    assert (len(rollouts()), len(openai_server.asked)) == (6, 24)


def test_fewer_samples_than_a_broken_run_was_to_draw_are_complete(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
) -> None:
    def respond(asked: Asked) -> Behaviour:
        return Refuse(500) if asked.seed in (0, 1) else Say(right(asked))

    problems, models = write_problems(1), models_file("m", more="max_retries = 0")
    openai_server.respond = respond
    assert sample(problems, "--samples", 6, models=models, seed=0) == 1
    assert [row["rollout_id"][-1] for row in rollouts()] == ["2", "3", "4", "5"]
    openai_server.respond = answer_right
    assert sample(problems, "--samples", 3, models=models, seed=0) == 0
    assert [row["rollout_id"][-1] for row in rollouts()] == ["0", "1", "2"]


def test_samples_need_no_ground_truth_and_correct_ones_do(
    sample: Sample,
    write_problems: Problems,
    rollouts: Rows,
    tmp_path: Path,
    openai_server: OpenAIServer,
) -> None:
    problems = write_problems(3, p1={"ground_truth": None}, p2={"problem": " "})
    assert sample(problems, "--samples", 1) == 0
    assert [(row["problem_id"], row["correct"]) for row in rollouts()] == [
        ("p0", True),
        ("p1", None),
    ]
    assert sample(problems) == 0
    assert provenance(tmp_path)["counts"]["not_asked"] == {
        "p1": "no ground truth",
        "p2": "no text",
    }
    assert len(openai_server.asked) == 2 + 4


def test_a_text_that_no_request_can_carry_stops_no_other_problem(
    sample: Sample, write_problems: Problems, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = write_problems(2, p0={"problem": "What is \ud800 0 + 1000?"})
    assert sample(problems, "--dry-run") == 0
    assert "requests: 5 if" in capsys.readouterr().out
    assert sample(problems) == 0
    assert "1 not asked (first: 'p0', a text with characters that" in capsys.readouterr().out
    assert provenance(tmp_path)["counts"]["rows"] == 5


def test_a_second_run_asks_nothing_and_writes_the_same(
    sample: Sample, write_problems: Problems, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    openai_server.respond = lambda asked: (
        Say("Answer: 7") if asked.number % 3 == 0 else Say(right(asked))
    )
    problems = write_problems(5)
    assert sample(problems) == 0
    asked = len(openai_server.asked)
    written = (tmp_path / "rollouts.jsonl").read_bytes()
    (tmp_path / "rollouts.jsonl").unlink()
    assert sample(problems) == 0
    assert len(openai_server.asked) == asked
    assert (tmp_path / "rollouts.jsonl").read_bytes() == written


def test_a_corrected_ground_truth_is_judged_anew_and_not_paid_for_again(
    sample: Sample, write_problems: Problems, rollouts: Rows, openai_server: OpenAIServer
) -> None:
    openai_server.respond = lambda asked: Say("Answer: 5")
    arguments = ("--samples", 2)
    assert sample(write_problems(1), *arguments) == 0
    assert [row["correct"] for row in rollouts()] == [False, False]
    assert sample(write_problems(1, p0={"ground_truth": "5"}), *arguments) == 0
    assert [row["correct"] for row in rollouts()] == [True, True]
    assert len(openai_server.asked) == 2


@pytest.mark.parametrize(
    "trouble",
    [
        Refuse(429),
        Refuse(429, headers={"retry-after": "0.01"}),
        Refuse(500),
        Refuse(503),
        HangUp(),
        Garbage(),
        Say("Answer: 1000", cut_after=0),
        Say("x" * 99, cut_after=3),
        Say("x" * 99, broken_after=3),
        Say("x" * 99, choices=False),
        Say("x" * 99, finish_reason=None),
    ],
    ids=repr,
)
def test_trouble_with_every_third_request_changes_nothing(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
    trouble: Behaviour,
) -> None:
    openai_server.respond = lambda asked: trouble if asked.number % 3 == 0 else answer_right(asked)
    assert sample(write_problems(4), models=models_file("a", "b")) == 0
    assert Counter(row["problem_id"] for row in rollouts()) == {f"p{n}": 5 for n in range(4)}
    assert all(row["correct"] for row in rollouts())


def test_a_problem_that_is_refused_stops_no_other_and_is_not_asked_again(
    sample: Sample,
    write_problems: Problems,
    rollouts: Rows,
    openai_server: OpenAIServer,
    tmp_path: Path,
) -> None:
    openai_server.respond = lambda asked: (
        Refuse(400, "flagged") if is_problem(asked, 1) else answer_right(asked)
    )
    problems = write_problems(3)
    for _ in range(2):
        assert sample(problems, "--concurrency", 1) == 0
    assert Counter(row["problem_id"] for row in rollouts()) == {"p0": 5, "p2": 5}
    [refused, *_] = provenance(tmp_path)["counts"]["refused"]
    assert refused["problem_id"] == "p1" and "HTTP 400: flagged" in refused["reason"]
    assert 1 <= sum(is_problem(asked, 1) for asked in openai_server.asked) <= 5


def test_a_refused_key_stops_at_once(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_server.script(then=Refuse(401, "Incorrect API key provided: sk-of-the-tests"))
    assert sample(write_problems(50), "--concurrency", 4) == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert "HTTP 401: Incorrect API key provided: …; 0 of 50 problems are finished" in sentence
    assert len(openai_server.asked) <= 8
    assert not (tmp_path / "rollouts.jsonl").exists()


def test_no_file_ever_holds_a_key(
    sample: Sample, write_problems: Problems, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    openai_server.respond = lambda asked: (
        Refuse(400, "sk-of-the-tests is not for you") if asked.number == 0 else answer_right(asked)
    )
    assert sample(write_problems(2)) == 0
    written = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(written) == 4 and not any(b"sk-of-the-tests" in content for content in written)


def test_a_model_that_is_gone_is_given_up_and_the_others_go_on(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_server.respond = lambda asked: (
        Refuse(503) if asked.model == "gone" else answer_right(asked)
    )
    models = models_file("good", "gone", more="max_retries = 1\nconcurrency = 2")
    assert sample(write_problems(30), models=models) == 0
    assert Counter(row["model"] for row in rollouts()) == {"good": 150}
    assert "warning: gone was given up: gone at http" in capsys.readouterr().err
    assert sum(asked.model == "gone" for asked in openai_server.asked) < 60


def test_with_no_model_left_the_run_ends_and_the_next_goes_on(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_server.respond = lambda asked: Refuse(503) if asked.number >= 20 else answer_right(asked)
    problems = write_problems(40)
    models = models_file("a", more="max_retries = 0\nconcurrency = 4")
    assert sample(problems, models=models) == 1
    assert "HTTP 503" in (error := capsys.readouterr().err)
    assert "of 40 problems are finished; run the same command again" in error
    assert not (tmp_path / "rollouts.jsonl").exists() and len(openai_server.asked) < 60
    delivered = len(openai_server.delivered)
    openai_server.respond = answer_right
    assert sample(problems, models=models) == 0
    assert len(rollouts()) == 200 == len(openai_server.delivered) and delivered >= 20


def test_one_problem_without_a_reply_waits_for_the_next_run(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    rollouts: Rows,
    openai_server: OpenAIServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_server.respond = lambda asked: HangUp() if is_problem(asked, 1) else answer_right(asked)
    problems = write_problems(3)
    models = models_file("a", more="max_retries = 1")
    assert sample(problems, models=models) == 1
    assert "1 of 3 problems wait for a reply, the first 'p1' (a at http" in capsys.readouterr().err
    assert len(rollouts()) == 10  # the rest is written
    openai_server.respond = answer_right
    assert sample(problems, models=models) == 0
    assert len(rollouts()) == 15


def test_a_changed_setting_is_refused_and_another_model_is_welcome(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    rollouts: Rows,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = write_problems(2)
    assert sample(problems, "--per-problem", 3, models=models_file("a")) == 0
    asked = len(openai_server.asked)
    assert sample(problems, "--temperature", 1.0, models=models_file("a")) == 2
    error = capsys.readouterr().err
    assert "rollouts.jsonl.journal was begun with sampling of a = " in error
    assert "keep the setting, or begin another output" in error
    assert sample(problems, models=models_file("a"), seed=3) == 2
    assert "was begun with seed = null, now it is 3" in capsys.readouterr().err
    assert len(openai_server.asked) == asked
    assert sample(problems, "--per-problem", 5, models=models_file("a", "b")) == 0
    assert Counter(row["model"] for row in rollouts()) == {"a": 6, "b": 4}
    assert len(openai_server.asked) == 10


def test_settings_that_a_model_refuses_stop_the_run_and_can_be_put_right(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    rollouts: Rows,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def respond(asked: Asked) -> Behaviour:
        picky = asked.model == "picky" and "temperature" in asked.body
        return Refuse(400, "temperature is not supported") if picky else Say(right(asked))

    openai_server.respond = respond
    problems, models = write_problems(30), models_file("good", "picky")
    assert sample(problems, models=models) == 1
    error = capsys.readouterr().err
    assert "temperature is not supported; so were all 8 first requests" in error
    paid = len(openai_server.delivered)
    assert 0 < paid < 150
    models.write_text(models.read_text() + 'temperature = "default"\n')
    assert sample(problems, models=models) == 0
    assert all(row["correct"] for row in rollouts()) and len(rollouts()) == 150
    assert len(openai_server.delivered) == 150
    assert Counter(row["model"] for row in rollouts())["picky"] > 30


def test_a_few_problems_that_are_all_refused_are_asked_again(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    rollouts: Rows,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_server.respond = lambda asked: (
        Refuse(400, "no stream_options") if "stream_options" in asked.body else Say(right(asked))
    )
    problems = write_problems(3)
    assert sample(problems, "--samples", 1, models=models_file("m")) == 1
    assert "no stream_options; the model answered nothing else" in capsys.readouterr().err
    models = models_file("m", more="stream_usage = false")
    assert sample(problems, "--samples", 1, models=models) == 0
    assert len(rollouts()) == 3 and len(openai_server.asked) == 6


def test_parquet_and_reasoning(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    tmp_path: Path,
) -> None:
    from consensuspr.data import read_rollouts

    openai_server.respond = lambda asked: Say(
        right(asked), reasoning="I think." if asked.number % 2 else ""
    )
    output = tmp_path / "r.parquet"
    assert sample(write_problems(2), "--output", output, with_reasoning=True) == 0
    rows = list(read_rollouts(output))
    starts = Counter(row["response"].partition("\n")[0] for row in rows)
    assert starts["<think>"] == 5 and len(rows) == 10
    assert rows[0]["sampling"]["temperature"] == 2.0 and rows[0]["correct"] is True


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        (["--per-problem", 0], {}, "per_problem (--per-problem): Input should be greater than or"),
        (["--samples", 10_001], {}, "samples (--samples): Input should be less than or equal to"),
        (["--temperature", 99], {}, "temperature of toy must be from 0 to 10, got 99"),
        (["--finish"], {}, "rollouts.jsonl.journal: no such file"),
        (["--output", "/none/r.jsonl"], {}, "/none does not exist: make it first"),
        ([], {"minimum": 6}, "minimum must be at most per_problem=5, got 6"),
        ([], {"max_attempts": 4}, "max_attempts=4 of 1 models cannot give per_problem=5"),
        ([], {"max_requests": -1}, "equal to 0, got '-1'"),
        ([], {"seeds": 1}, "did you mean CONSENSUSBENCH_SAMPLE_SEED?"),
        ([], {"on_error": "pass"}, "on_error (environment variable CONSENSUSBENCH_SAMPLE_ON_ERR"),
    ],
)
def test_bad_usage_is_one_sentence_and_nothing_is_asked(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    capsys: pytest.CaptureFixture[str],
    arguments: list[object],
    settings: dict[str, object],
    sentence: str,
) -> None:
    assert sample(write_problems(1), *arguments, **settings) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert sentence in error and openai_server.asked == []


def test_settings_come_from_a_file_and_the_command_line_has_the_last_word(
    sample: Sample,
    write_problems: Problems,
    rollouts: Rows,
    openai_server: OpenAIServer,
    tmp_path: Path,
) -> None:
    config = tmp_path / "sample.toml"
    config.write_text("seed = 7\nsamples = 9\nmax_tokens = 50\ntop_p = 0.5\n")
    assert sample(write_problems(1), "--config", config, "--samples", 2, seed=8) == 0
    assert sorted(asked.seed or 0 for asked in openai_server.asked) == [8, 9]
    assert openai_server.asked[0].body["top_p"] == 0.5
    assert rollouts()[0]["sampling"]["max_tokens"] == 50


def test_the_problems_are_not_overwritten(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = write_problems(1)
    before = problems.read_bytes()
    assert sample(problems, "--output", problems) == 2
    assert "is read by this command; write elsewhere" in capsys.readouterr().err
    assert problems.read_bytes() == before and not openai_server.asked


def test_a_bad_row_stops_before_anything_is_paid(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    rollouts: Rows,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = write_problems(3)
    problems.write_text(problems.read_text() + "{broken\n")
    assert sample(problems) == 2
    assert "problems.jsonl:4: is not JSON" in capsys.readouterr().err
    assert openai_server.asked == []
    assert sample(problems, on_error="skip") == 0
    assert len(rollouts()) == 15


def test_help_teaches_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("│    --") < 20  # a dozen and those of all commands
    assert "consensusbench sample problems.jsonl --model gpt-5-mini" in shown
    assert "no reply is paid for twice" in " ".join(shown.split())
