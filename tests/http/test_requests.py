"""Requests of exactly OpenRLHF's and slime's shape, and the settings in their URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.errors import InputError
from consensuspr.http import requests
from consensuspr.http.settings import read_settings
from consensuspr.scoring import AnswerRule, OnUndecided
from consensuspr.scoring.types import ScoreOptions
from tests.score_logs import rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import InProcessServer, Reply, Serve

PROMPT = "<|im_start|>user\nHow much?<|im_end|>\n<|im_start|>assistant\n"
BOTH = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. Answer: 18"
HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 3"
FIGURES = {
    "acc": 0.0, "ncr": 0.5, "ncr_raw": 0.5, "guard": 1.0, "num_nodes": 2, "num_matched": 1,
}  # fmt: skip
TRAINED = RewardSpec.linear(unanswered="zero")


def batch_of(*rollouts: tuple[Any, str]) -> dict[str, list[Any]]:
    """Return what OpenRLHF sends for labels and responses."""
    return {
        "query": [f"{PROMPT}{response}<|im_end|>" for _, response in rollouts],
        "prompts": [PROMPT] * len(rollouts),
        "labels": [label for label, _ in rollouts],
    }


def test_openrlhf_gets_lists_of_numbers(server: InProcessServer) -> None:
    reply = server.post("/openrlhf", batch_of(("ducks", HALF)))
    assert (reply.code, reply.headers["content-type"]) == (200, "application/json")
    curves = {name: [float(value)] for name, value in {**FIGURES, "unscorable": 0}.items()}
    assert reply.body == {
        "rewards": [0.25],
        "scores": [0.25],
        "extra_logs": curves,
        "statuses": ["OK"],
        "messages": [""],
    }
    none = server.post("/openrlhf", {"query": [], "prompts": [], "labels": []})
    assert (none.body["rewards"], none.body["extra_logs"].keys()) == ([], curves.keys())


def test_slime_gets_an_object_or_a_number(server: InProcessServer) -> None:
    sample = {"prompt": PROMPT, "response": f"{HALF}<|im_end|>", "label": "ducks"}
    reply = server.post("/slime", sample)
    assert reply.body == {
        "reward": 0.25, "status": "OK", "message": "", "unscorable": False, **FIGURES,
    }  # fmt: skip
    assert server.post("/slime?reply=number&alpha=0", sample).body == 0.5


def test_rewards_are_those_of_the_local_client(server: InProcessServer, dataset_file: Path) -> None:
    responses = [BOTH, HALF, "I do not know.", f"{HALF}</think>{BOTH}", "", "😀 \\frac \u0000 7"]
    responses *= 60  # more than one piece holds
    body, rollouts = (
        batch_of(*(("ducks", r) for r in responses)),
        [Rollout("ducks", r) for r in responses],
    )
    with LocalClient(dataset=dataset_file) as local:
        for query, reward, epoch in (
            ("", TRAINED, 0),
            ("?reward=max&unanswered=ncr", RewardSpec.maximum(), 0),
            ("?reward=curriculum&epoch=1", RewardSpec.curriculum(1), 1),
        ):
            before = len(server.scorer.pieces)
            reply = server.post(f"/openrlhf{query}", body)
            scores = local.score(rollouts, reward=reward, epoch=epoch)
            assert reply.body["rewards"] == [score.reward for score in scores]
            assert len(server.scorer.pieces) - before > 1


def test_a_request_is_logged_once_it_has_succeeded(start: Serve, tmp_path: Path) -> None:
    server = start(score_log=tmp_path)
    body = batch_of(*[("ducks", BOTH)] * 360)  # more than one piece holds

    def fail_at_the_second_piece(rollouts: object) -> None:
        if len(server.scorer.pieces) > 1:
            raise RuntimeError("a defect")

    server.scorer.hook = fail_at_the_second_piece
    assert server.post("/openrlhf", body).code == 500
    server.scorer.hook = lambda rollouts: None
    assert server.post("/openrlhf", body).code == 200
    assert server.post("/openrlhf", batch_of(("nope", BOTH))).code == 422
    assert server.service.score_log is not None
    server.service.score_log.close()
    assert len(rows_in(tmp_path, "key")) == 360


@pytest.mark.parametrize(
    ("label", "reward"),
    [
        ({"problem_id": "ducks"}, 0.75),
        ('{"problem_id": "ducks"}', 0.75),
        ({"problem_id": "ducks", "ground_truth": 19}, 0.25),
        ({"ground_truth": "18", "nodes": [["16-3-4=9"]]}, 1.0),
        ({"problem_id": "ducks", "nodes": [{"expressions": ["never"]}]}, 0.5),
        ({"problem_id": "ducks", "budget": {"statements": 9, "numbers": 9}}, 0.75),
    ],
)
def test_a_label_may_say_more_than_the_id(
    server: InProcessServer, label: Any, reward: float
) -> None:
    reply = server.post("/openrlhf", batch_of((label, "16 - 3 - 4 = 9 Answer: 18")))
    assert (reply.code, reply.body.get("rewards")) == (200, [reward])


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"label": "nope"}, "UNKNOWN_PROBLEM", "'nope'"),
        ({"label": None}, "UNKNOWN_PROBLEM", "''"),
        ({"label": "bare"}, "NO_NODES", "has no nodes"),
        ({"label": {"problem_id": "ducks", "nodes": [[]]}}, "INVALID_NODES", "no expressions"),
        ({"query": "something else"}, "RESPONSE_NOT_FOUND", "does not contain the prompt"),
    ],
)
def test_a_rollout_without_reward_fails_the_request_or_gets_the_number_in_the_url(
    server: InProcessServer, changes: dict[str, Any], status: str, message: str
) -> None:
    body = batch_of(("ducks", BOTH), (changes.get("label", "ducks"), BOTH))
    body["query"][1] = changes.get("query", body["query"][1])
    refused = server.post("/openrlhf", body)
    assert (refused.code, "rewards" in refused.body) == (422, False)
    [named] = refused.body["unscorable"]
    assert (named["index"], named["status"]) == (1, status)
    assert message in named["message"]
    assert refused.body["error"].startswith("1 of 2 rollouts have no reward")
    reply = server.post("/openrlhf?on_unscorable=-0.5", body)
    assert (reply.body["rewards"], reply.body["statuses"]) == ([1.0, -0.5], ["OK", status])
    assert reply.body["extra_logs"]["unscorable"] == [0.0, 1.0]


def test_filtering_by_accuracy(server: InProcessServer) -> None:
    reply = server.post("/openrlhf?scores=acc", batch_of(("ducks", HALF)))
    assert (reply.body["rewards"], reply.body["scores"]) == ([0.25], [0.0])
    unknown, path = batch_of(("open", "x + 1 = 2")), "/openrlhf?reward=curriculum&epoch=0"
    assert server.post(path, unknown).body["rewards"] == [1.0]
    assert server.post(f"{path}&scores=acc", unknown).code == 422
    reply = server.post(f"{path}&scores=acc&on_unscorable=0.5", unknown)
    assert (reply.body["rewards"], reply.body["scores"]) == ([1.0], [0.5])


GOOD = batch_of(("ducks", BOTH))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is not JSON"),
        (b"\xff\xfe{}", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON: maximum recursion depth exceeded"),
        ([], "valid dictionary"),
        ({"query": ["q"]}, "prompts: Field required"),
        ({**GOOD, "query": [1]}, "query.0: Input should be an instance of str, got '1'"),
        ({**GOOD, "prompts": []}, "must have the same length, got 1, 0 and 1"),
        ({**GOOD, "labels": [True]}, "labels[0].problem_id: Input should be a valid string"),
        ({**GOOD, "labels": [{"problemid": "p"}]}, "labels[0].problemid: Extra inputs"),
        ({**GOOD, "labels": ["{1, 2}"]}, "labels[0] is not JSON"),
    ],
)
def test_a_malformed_request_is_rejected(
    server: InProcessServer, body: object, sentence: str
) -> None:
    reply: Reply = server.post("/openrlhf", body)
    assert reply.code == 400
    assert sentence in reply.body["error"]


def test_values_are_counted_without_those_in_texts() -> None:
    text = b'{"query": ["' + b'[1, 2], \\"' * 200_000 + b'"]}'
    assert requests.parse_json(text, "the body")
    for many in (b"[" + b"0," * 300_000 + b"0]", b"[" + b"1," * 300_000 + b'"\\'):
        assert len(many) < 1 << 20
        with pytest.raises(InputError, match="the body has more than 262144 values"):
            requests.parse_json(many, "the body")
    label = '{"nodes": [' + "[]," * 300_000 + "[]]}"
    with pytest.raises(InputError, match="label has more than 262144 values"):
        requests.labelled(label, "18", "label")


def test_settings_in_the_url() -> None:
    settings = read_settings(
        parse_qsl(
            "reward=curriculum&epoch=3&switch_epoch=2&dataset=math&answer_rule=dapo"
            "&on_undecided=mask&run=mine&on_unscorable=-1&scores=acc"
        ),
        "openrlhf",
    )
    assert settings.options() == ScoreOptions(
        RewardSpec.curriculum(2),
        epoch=3,
        dataset="math",
        answer_rule=AnswerRule.DAPO,
        on_undecided=OnUndecided.MASK,
        run="mine",
    )
    assert (settings.on_unscorable, settings.scores) == (-1.0, "acc")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("rewrad=linear", "setting rewrad: Extra inputs are not permitted"),
        ("alpha=1&alpha=1", "the URL has a setting twice"),
        ("reward=Linear", "setting reward: Input should be 'linear', 'max'"),
        ("alpha=1.5", "setting alpha: Input should be less than or equal to 1, got"),
        ("alpha=nan", "setting alpha: Input should be a finite number, got 'nan'"),
        ("reward=max&alpha=0.5", "alpha has no effect on /slime with reward=max"),
        ("scores=acc", "scores has no effect on /slime"),
        ("reward=curriculum", "reward=curriculum needs epoch=N in the URL"),
        ("reward=curriculum&epoch=-1", "setting epoch: Input should be greater than"),
    ],
)
def test_settings_that_are_rejected(query: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read_settings(parse_qsl(query), "slime").options()
    assert sentence in str(error.value)
