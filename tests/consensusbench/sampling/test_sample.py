"""The command against a test server: requests, rows, messages and cost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.consensusbench.openai_server import Refuse, Say
from tests.consensusbench.sampling.conftest import (
    SampleBench,
    is_problem,
    refuse_where,
    right,
    wrong_where,
)


def test_rows_hold_text_sampling_and_cost(bench: SampleBench) -> None:
    bench.server.respond = lambda asked: Say(right(asked), reasoning="hm, an addition")
    models = bench.models("m/1", more="price_in = 1\nprice_out = 2\nmax_tokens = 99")
    assert bench.sample(bench.problems(1), "--per-problem", 3, models=models, seed=7) == 0
    rows = bench.rollouts()
    text = right(bench.server.asked[0])
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
    assert bench.server.asked[0].prompt.startswith("Solve the following math problem step by ")
    assert sorted(asked.seed or 0 for asked in bench.server.asked) == [7, 8, 9]
    bench.output = bench.folder / "r.parquet"
    assert bench.sample(bench.problems(2), with_reasoning=True) == 0
    assert bench.rollouts()[0]["response"].startswith("<think>\nhm, an addition\n</think>\n\nWe ")


def test_wrong_rollouts_are_kept_and_flagged_and_the_models_share_the_work(
    bench: SampleBench,
) -> None:
    bench.server.respond = wrong_where(lambda asked: asked.model == "weak")
    assert bench.sample(bench.problems(4), models=bench.models("a", "b", "weak")) == 0
    by_problem = Counter((row["problem_id"], row["correct"]) for row in bench.rollouts())
    assert by_problem == {
        (f"p{n}", right): 5 if right else 2 for n in range(4) for right in (True, False)
    }
    models = Counter((row["model"], row["correct"]) for row in bench.rollouts())
    assert models["weak", False] == 8
    assert models["a", True] + models["b", True] == 20 and min(models.values()) >= 8
    shown = bench.printed()
    assert "4 problems complete" in shown and "rollouts.jsonl: 28 rows" in shown
    assert bench.counts()["models"]["weak"]["rollouts"] == 8


@pytest.mark.parametrize(
    ("reply", "correct"),
    [
        (Say("It is 1000.\nAnswer: 1000"), True),
        (Say("It is 1000", finish_reason="length"), False),
        (Say("I cannot say."), False),
        (Say(""), False),
        (Say(r"\boxed{10^3}"), True),
    ],
    ids=repr,
)
def test_the_real_verifier_decides(bench: SampleBench, reply: Say, correct: bool) -> None:
    bench.server.respond = lambda asked: reply
    assert bench.sample(bench.problems(1), "--per-problem", 1, minimum=1, max_attempts=2) == 0
    rows = bench.rollouts()
    assert [row["correct"] for row in rows] == ([True] if correct else [False, False])
    assert rows[0]["response"] == reply.text and rows[0]["finish_reason"] == reply.finish_reason


def test_problems_that_cannot_be_asked_are_named(bench: SampleBench) -> None:
    problems = bench.problems(
        4, p1={"ground_truth": None}, p2={"problem": " "}, p3={"problem": "What is \ud800?"}
    )
    # Samples need no ground truth, correct rollouts do.
    assert bench.sample(problems, "--samples", 1) == 0
    written = [(row["problem_id"], row["correct"]) for row in bench.rollouts()]
    assert written == [("p0", True), ("p1", None)]
    assert bench.sample(problems) == 0
    assert "3 not asked (first: 'p1', no ground truth)" in bench.printed()
    assert bench.counts()["not_asked"] == {
        "p1": "no ground truth",
        "p2": "no text",
        "p3": "a text with characters that no request can carry",
    }
    assert len(bench.server.asked) == 2 + 4 and len(bench.rollouts()) == 5


def test_exactly_k_samples_are_drawn_and_more_are_added_later(bench: SampleBench) -> None:
    bench.server.respond = wrong_where(lambda asked: is_problem(asked, 0))
    problems, models = bench.problems(3), bench.models("a", "b")
    for samples, asked, written in ((2, 12, 12), (4, 24, 24), (1, 24, 6)):
        assert bench.sample(problems, "--samples", samples, models=models) == 0
        assert (len(bench.server.asked), len(bench.rollouts())) == (asked, written)
    assert Counter(row["correct"] for row in bench.rollouts()) == {True: 4, False: 2}
    # A corrected ground truth is judged anew and not paid for again.
    corrected = bench.problems(3, p0={"ground_truth": "7"})
    assert bench.sample(corrected, "--samples", 1, models=models) == 0
    assert all(row["correct"] for row in bench.rollouts()) and len(bench.server.asked) == 24


def test_a_refused_problem_stops_no_other_and_is_not_asked_again(
    bench: SampleBench,
) -> None:
    bench.server.respond = refuse_where(lambda asked: is_problem(asked, 1), 400, "flagged")
    problems = bench.problems(3)
    for _ in range(2):
        assert bench.sample(problems, "--concurrency", 1) == 0
    assert Counter(row["problem_id"] for row in bench.rollouts()) == {"p0": 5, "p2": 5}
    [refused, *_] = bench.counts()["refused"]
    assert refused["problem_id"] == "p1" and "HTTP 400: flagged" in refused["reason"]
    assert 1 <= sum(is_problem(asked, 1) for asked in bench.server.asked) <= 5


def test_refusals_of_a_model_that_never_answered_are_failures(bench: SampleBench) -> None:
    bench.server.script(then=Refuse(400, "flagged"))
    assert bench.sample(bench.problems(1), "--samples", 3) == 1
    assert "1 of 1 problems have no reply yet" in (error := bench.printed())
    assert "HTTP 400: flagged" in error
    assert bench.sample(bench.problems(9), "--samples", 3) == 1
    assert "HTTP 400: flagged; 0 of 9 problems are finished" in bench.printed()


def test_a_refused_key_stops_at_once(bench: SampleBench) -> None:
    bench.server.script(then=Refuse(401, "Incorrect API key provided: sk-of-the-tests"))
    assert bench.sample(bench.problems(50), "--concurrency", 4) == 1
    assert (
        "HTTP 401: Incorrect API key provided: …; 0 of 50 problems are finished" in bench.printed()
    )
    assert len(bench.server.asked) <= 8
    assert not bench.output.exists()


def test_a_dead_model_is_given_up_and_the_others_go_on(bench: SampleBench) -> None:
    bench.server.respond = refuse_where(lambda asked: asked.model == "gone", 503)
    models = bench.models("good", "gone", more="max_retries = 1\nconcurrency = 2")
    assert bench.sample(bench.problems(30), models=models) == 0
    assert Counter(row["model"] for row in bench.rollouts()) == {"good": 150}
    assert "warning: stopped asking gone: gone at 127" in bench.printed()
    assert sum(asked.model == "gone" for asked in bench.server.asked) < 60


def test_changed_settings_are_rejected_before_anything_is_paid(bench: SampleBench) -> None:
    problems, models = bench.problems(2), bench.models("a")
    for temperature, more, code in (
        (2.0, (), 0),
        (1.0, (), 2),
        (1.0, ("--finish",), 2),
        (2.0, ("--seed", 1), 2),
        (2.0, (), 0),
    ):
        arguments = ("--per-problem", 3, "--temperature", temperature, *more)
        assert bench.sample(problems, *arguments, models=models) == code
        assert (len(bench.server.asked), len(bench.rollouts())) == (6, 6)
    printed = bench.printed()
    assert "of a with temperature = 2.0, now it is 1.0" in printed
    assert "of a with seed = null, now it is 1" in printed
    assert bench.sample(problems, "--per-problem", 5, models=bench.models("a", "b")) == 0
    assert Counter(row["model"] for row in bench.rollouts()) == {"a": 6, "b": 4}
    assert len(bench.server.asked) == 10


def test_rejected_settings_can_be_fixed(bench: SampleBench) -> None:
    bench.server.respond = refuse_where(
        lambda asked: asked.model == "picky" and "temperature" in asked.body, 400, "no temperature"
    )
    problems, models = bench.problems(10), bench.models("good", "picky")
    assert bench.sample(problems, "--samples", 2, models=models) == 1
    assert "stopped asking picky: picky at 127" in (error := bench.printed())
    assert "no temperature" in error
    assert Counter(row["model"] for row in bench.rollouts()) == {"good": 20}
    models.write_text(models.read_text() + 'temperature = "default"\n')
    assert bench.sample(problems, "--samples", 2, models=models) == 0
    assert Counter(row["model"] for row in bench.rollouts()) == {"good": 20, "picky": 20}
    assert len(bench.server.delivered) == 40


def test_the_limit_of_requests_holds_and_a_higher_one_goes_on(bench: SampleBench) -> None:
    problems = bench.problems(10)
    assert bench.sample(problems, max_requests=23) == 1
    assert "the limit of 23 requests is reached; " in bench.printed()
    assert len(bench.server.asked) == 23
    assert bench.sample(problems, max_requests=23) == 1  # of all runs together
    assert len(bench.server.asked) == 23
    assert not bench.output.exists()
    assert bench.sample(problems, "--finish", max_requests=23) == 0
    assert (len(bench.rollouts()), len(bench.server.asked)) == (23, 23)
    assert bench.sample(problems, max_requests=50) == 0
    assert (len(bench.rollouts()), len(bench.server.asked)) == (50, 50)
