"""OpenRLHF's requests, of exactly its shape, against a real server."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.scoring import DatasetIndex
from tests.http.conftest import DUCKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import InProcessServer, Serve

TWINS = "Which of the two twins is the older one?"
BOTH = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. Answer: 18"
HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 3"
NONE = "I do not know."
UNMARKED = "16 - 3 - 4 = 9 eggs are left."


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}\nThink step by step.<|im_end|>\n<|im_start|>assistant\n"


def request_of(*rollouts: tuple[str, str, Any]) -> dict[str, list[Any]]:
    """Return what OpenRLHF sends for questions, responses and labels."""
    prompts = [chat(question) for question, _, _ in rollouts]
    responses = [response for _, response, _ in rollouts]
    return {
        "query": [p + r + "<|im_end|>" for p, r in zip(prompts, responses, strict=True)],
        "prompts": prompts,
        "labels": [label for _, _, label in rollouts],
    }


@pytest.fixture(scope="module")
def local(dataset_file: Path) -> Iterator[LocalClient]:
    """A client that scores in this process."""
    with LocalClient(dataset=dataset_file) as client:
        yield client


def test_one_rollout(server: InProcessServer) -> None:
    reply = server.post("/openrlhf", request_of((DUCKS, HALF, "18")))
    assert reply.code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.body == {
        "rewards": [0.25],
        "scores": [0.25],
        "extra_logs": {
            "acc": [0.0],
            "ncr": [0.5],
            "ncr_raw": [0.5],
            "guard": [1.0],
            "num_nodes": [2.0],
            "num_matched": [1.0],
            "unscorable": [0.0],
        },
        "statuses": ["OK"],
        "messages": [""],
    }


@pytest.mark.parametrize(
    ("query", "reward", "epoch"),
    [
        ("", RewardSpec.linear(0.5, unanswered="zero"), 0),
        ("?unanswered=ncr&code=computed", RewardSpec.linear(code="computed"), 0),
        ("?reward=linear&alpha=0.2", RewardSpec.linear(0.2, unanswered="zero"), 0),
        ("?reward=max", RewardSpec.maximum(unanswered="zero"), 0),
        ("?reward=outcome", RewardSpec.outcome(), 0),
        ("?reward=curriculum&epoch=0", RewardSpec.curriculum(1), 0),
        ("?reward=curriculum&epoch=1", RewardSpec.curriculum(1), 1),
        ("?guard=false", RewardSpec.linear(guard=False, unanswered="zero"), 0),
        (
            "?statements=false&reward=max",
            RewardSpec.maximum(statements=False, unanswered="zero"),
            0,
        ),
        (
            "?final_nodes=false&ncr=plain",
            RewardSpec.linear(final_nodes=False, unanswered="zero"),
            0,
        ),
        ("?after_think=true", RewardSpec.linear(after_think=True, unanswered="zero"), 0),
    ],
)
def test_many_rollouts_get_the_rewards_of_the_local_client(
    server: InProcessServer, local: LocalClient, query: str, reward: RewardSpec, epoch: int
) -> None:
    # More than one piece holds; few of them are for computer algebra.
    responses = (
        [BOTH, HALF, NONE, UNMARKED, f"{HALF}</think>{BOTH}"] * 64
        + [""]
        + ["😀 \\frac{1}{2} \"'\n\t\u0000 日本: 7"] * 8
    )
    reply = server.post(f"/openrlhf{query}", request_of(*((DUCKS, r, "18") for r in responses)))
    scores = local.score([Rollout("ducks", r) for r in responses], reward=reward, epoch=epoch)
    assert reply.code == 200
    assert reply.body["rewards"] == [score.reward for score in scores]
    assert reply.body["extra_logs"]["acc"] == [score.acc for score in scores]
    assert reply.body["extra_logs"]["ncr"] == [score.ncr for score in scores]
    assert len(server.sizes()) > 1, "a large batch is scored in pieces"


def test_no_rollouts(server: InProcessServer) -> None:
    """OpenRLHF up to 0.9 sends them where it has more servers than rollouts."""
    reply = server.post("/openrlhf", {"query": [], "prompts": [], "labels": []})
    assert reply.code == 200
    assert reply.body["rewards"] == []
    assert set(reply.body["extra_logs"]) == {
        "acc", "ncr", "ncr_raw", "guard", "num_nodes", "num_matched", "unscorable",
    }  # fmt: skip


def test_padding_and_special_tokens_do_not_matter(server: InProcessServer) -> None:
    request = request_of((DUCKS, BOTH, "18"))
    request["query"] = ["<pad>" * 50 + request["query"][0] + "\n" + "<|endoftext|>" * 50]
    reply = server.post("/openrlhf?answer_rule=dapo", request)
    assert reply.body["rewards"] == [1.0]


@pytest.mark.parametrize(
    ("question", "label", "reward"),
    [
        (DUCKS, "", 0.75),  # no label: the dataset's truth
        (DUCKS, None, 0.75),
        (DUCKS, 18, 0.75),  # a number
        (TWINS, {"problem_id": "ducks"}, 0.75),  # the label wins over the text
        (TWINS, '{"problem_id": "ducks"}', 0.75),
        (DUCKS, {"problem_id": "ducks", "ground_truth": "19"}, 0.25),
        (TWINS, {"ground_truth": "18", "nodes": [["16-3-4=9"]]}, 1.0),
        (TWINS, {"problem_id": "ducks", "nodes": [{"expressions": ["never"]}]}, 0.5),
    ],
)
def test_what_the_label_may_be(
    server: InProcessServer, question: str, label: Any, reward: float
) -> None:
    response = "16 - 3 - 4 = 9 Answer: 18"
    reply = server.post("/openrlhf", request_of((question, response, label)))
    assert (reply.code, reply.body.get("rewards")) == (200, [reward])


CANNOT = [
    (("hello", BOTH, "18"), "NO_NODES", "the prompt holds no problem of dataset 'default'"),
    (("hello", BOTH, ""), "UNKNOWN_PROBLEM", "the prompt holds no problem"),
    ((DUCKS, BOTH, "19"), "NO_NODES", "the label '19' is not its ground truth"),
    ((TWINS, BOTH, ""), "UNKNOWN_PROBLEM", "'twin-a', 'twin-b', and which is meant is unknown"),
    ((TWINS, BOTH, {"problem_id": "nope"}), "UNKNOWN_PROBLEM", "'nope'"),
    (("What is two plus three?", BOTH, "5"), "NO_NODES", "has no nodes"),
    ((DUCKS, BOTH, {"nodes": [[]]}), "INVALID_NODES", "inline node 0 has no expressions"),
]


@pytest.mark.parametrize(("rollout", "status", "message"), CANNOT)
def test_what_cannot_be_scored_is_an_error_or_the_number_that_the_url_names(
    server: InProcessServer, rollout: tuple[str, str, Any], status: str, message: str
) -> None:
    request = request_of((DUCKS, BOTH, "18"), rollout)
    refused = server.post("/openrlhf", request)
    assert refused.code == 422
    [told] = refused.body["unscorable"]
    assert (told["index"], told["status"]) == (1, status)
    assert message in told["message"]
    assert "rewards" not in refused.body
    assert refused.body["error"].startswith(
        f"1 of 2 rollouts have no reward and the URL names none (on_unscorable);"
        f" number 1: {status}: "
    )
    reply = server.post("/openrlhf?on_unscorable=-0.5", request)
    assert reply.code == 200
    assert reply.body["rewards"] == [1.0, -0.5]
    assert reply.body["statuses"] == ["OK", status]
    assert message in reply.body["messages"][1]
    assert reply.body["extra_logs"]["unscorable"] == [0.0, 1.0]


def test_a_query_without_its_prompt(server: InProcessServer) -> None:
    request = request_of((DUCKS, BOTH, "18")) | {"query": ["something else"]}
    assert server.post("/openrlhf", request).code == 422
    reply = server.post("/openrlhf?on_unscorable=0", request)
    assert (reply.body["rewards"], reply.body["statuses"]) == ([0.0], ["RESPONSE_NOT_FOUND"])


def test_without_nodes_the_label_alone_still_decides_the_outcome(server: InProcessServer) -> None:
    reply = server.post("/openrlhf?reward=outcome", request_of(("hello", BOTH, "18")))
    assert reply.code == 200
    assert (reply.body["rewards"], reply.body["statuses"]) == ([1.0], ["NO_NODES"])


def test_a_refusal_tells_of_the_first_ones_only(server: InProcessServer) -> None:
    reply = server.post("/openrlhf", request_of(*[("hello", NONE, "1")] * 300))
    assert reply.body["error"].startswith("300 of 300 rollouts")
    assert [told["index"] for told in reply.body["unscorable"]] == list(range(100))


def test_scores_for_filtering_by_accuracy(server: InProcessServer) -> None:
    request = request_of((DUCKS, BOTH, "18"), (DUCKS, HALF, "18"))
    reply = server.post("/openrlhf?scores=acc", request)
    assert (reply.body["rewards"], reply.body["scores"]) == ([1.0, 0.25], [1.0, 0.0])


def test_filtering_by_an_accuracy_that_is_unknown(server: InProcessServer) -> None:
    request = request_of(("为什么 𝑥+1 等于 2 呢？", "x + 1 = 2", ""))
    path = "/openrlhf?reward=curriculum&epoch=0"
    assert server.post(path, request).body["rewards"] == [1.0]
    assert server.post(f"{path}&scores=acc", request).code == 422
    reply = server.post(f"{path}&scores=acc&on_unscorable=0.5", request)
    assert (reply.body["rewards"], reply.body["scores"]) == ([1.0], [0.5])


GOOD = request_of((DUCKS, BOTH, "18"))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is no JSON: expected an object"),
        (b"{", "expected a key at byte 1"),
        (b"\xff\xfe{}", "expected an object at byte 0"),
        ([], "expected an object"),
        ({}, "the body has no query"),
        ({"query": ["q"]}, "the body has no prompts; it must be OpenRLHF 0.6 or newer"),
        ({**GOOD, "query": "text"}, "query must be a list"),
        ({**GOOD, "query": [1]}, "query[0] must be a string, got 1"),
        ({**GOOD, "prompts": [None]}, "prompts[0] must be a string, got null"),
        ({**GOOD, "prompts": []}, "prompts has 0 elements, query has 1"),
        ({**GOOD, "labels": ["18", "18"]}, "labels has 2 elements, query has 1"),
        ({**GOOD, "labels": [True]}, "labels[0] must be a string, a number or an object"),
        ({**GOOD, "labels": [{"problemid": "p"}]}, "labels[0] has the unknown key 'problemid'"),
        (b'{"query": ["\xff"], "prompts": [""]}', "query[0] is not UTF-8 at byte 12"),
        (b'{"query": ["\n"], "prompts": [""]}', "query[0] is no JSON value"),
        (b'{"query": ' + b"[" * 1_000_000, "nested more than 64 deep"),
    ],
)
def test_a_malformed_request_is_a_bad_one(
    server: InProcessServer, body: object, sentence: str
) -> None:
    reply = server.post("/openrlhf", body)
    assert reply.code == 400
    assert sentence in reply.body["error"]


def test_settings_are_checked_before_the_body_is_read(server: InProcessServer) -> None:
    reply = server.post("/openrlhf?reward=curriculum", b"no JSON")
    assert reply.code == 400
    assert reply.body["error"].startswith("reward=curriculum needs epoch=N in the URL")


def test_a_lone_surrogate_costs_nobody_a_score(server: InProcessServer) -> None:
    request = request_of((DUCKS, f"\ud800 {BOTH}", "18"), (DUCKS, BOTH, {"problem_id": "\ud800"}))
    reply = server.post("/openrlhf?on_unscorable=0", request)
    assert (reply.code, reply.body["rewards"]) == (200, [1.0, 0.0])


def test_limits_of_a_request_and_of_a_response(serve: Serve) -> None:
    server = serve(http_max_items=3, max_response_bytes=1000)
    assert server.post("/openrlhf", request_of(*[(DUCKS, BOTH, "18")] * 3)).code == 200
    reply = server.post("/openrlhf", request_of(*[(DUCKS, BOTH, "18")] * 4))
    assert reply.code == 400
    assert reply.body["error"] == "query holds more than 3 elements, the limit of a request"
    reply = server.post("/openrlhf", request_of((DUCKS, "x" * 1001, "18")))
    assert (reply.code, reply.body["unscorable"][0]["status"]) == (422, "OVERSIZE")


def test_which_of_several_datasets(serve: Serve) -> None:
    server = serve(names=("a", "b"))
    request = request_of((DUCKS, BOTH, "18"))
    assert server.post("/openrlhf?dataset=b", request).body["rewards"] == [1.0]
    unnamed = server.post("/openrlhf", request)
    assert unnamed.code == 400
    assert unnamed.body["error"] == "dataset must be named, there are several: a, b"
    unknown = server.post("/openrlhf?dataset=c", request)
    assert unknown.code == 404
    assert unknown.body["error"] == "no dataset is called 'c'; there is: a, b"


@pytest.mark.slow
def test_a_whole_step_at_once(server: InProcessServer, index: DatasetIndex) -> None:
    """What OpenRLHF up to 0.9 sends: 8,192 rollouts in one request."""
    filler = 'Let us see: \\frac{1}{2} is not it, "maybe" 𝑥. ' * 20
    request = request_of(
        *((DUCKS, f"{filler}{BOTH if i % 2 else HALF}", "18") for i in range(8192))
    )
    body = json.dumps(request).encode()
    start = time.perf_counter()
    reply = server.post("/openrlhf", body)
    assert reply.code == 200
    assert reply.body["rewards"] == [0.25, 1.0] * 4096
    assert time.perf_counter() - start < 60
    assert all(pieces <= 256 for pieces in server.sizes())
    assert math.isclose(sum(server.sizes()), 8192)
