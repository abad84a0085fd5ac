"""The resources server in the real NeMo Gym, asked over its own web application; a real server."""

from __future__ import annotations

import importlib
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nemo_gym", reason="NeMo Gym is not installed: run make test-trainers")
adapter = importlib.import_module("consensuspr.client.nemo_gym")
masks = pytest.mark.skipif(not adapter._HAS_MASK, reason="NeMo Gym before 0.7 has no mask_sample")

# Of what NeMo Gym imports.
pytestmark = pytest.mark.filterwarnings("ignore")


def reply(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "content": content}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


TOOL = {"type": "function_call_output", "call_id": "c", "output": "2+2=4 Answer: 2"}


def client(settings: dict[str, Any]) -> Any:
    from fastapi.testclient import TestClient
    from nemo_gym.server_utils import ServerClient

    from consensuspr.client.nemo_gym import ConsensusConfig, ConsensusResourcesServer

    config = ConsensusConfig(
        name="consensus", host="127.0.0.1", port=1, entrypoint="app.py", domain="math",
        consensuspr=settings,
    )  # fmt: skip
    server = ConsensusResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver())


def verify(settings: dict[str, Any], output: list[Any], **row: Any) -> Any:
    response = {
        "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    body = {"responses_create_params": {"input": "Q"}, "response": response, **row}
    with client(settings) as web:
        reply = web.post("/verify", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


ROW = {"problem_id": "toy/1", "ground_truth": "2"}
HALF = [thought("1+1=2"), TOOL, reply("Answer: 2")]


@pytest.mark.parametrize(
    ("settings", "reward", "parts"),
    [
        ({}, 0.75, {"acc": 0.5, "ncr": 0.25}),
        ({"alpha": 0.3}, 0.65, {"acc": 0.3, "ncr": 0.35}),
        ({"reward": "max"}, 1.0, {"acc": 1.0, "ncr": 0.0}),
        ({"reward": "outcome"}, 1.0, {"acc": 1.0, "ncr": 0.0}),
        ({"reward": "curriculum", "epoch": 0}, 0.5, {"acc": 0.0, "ncr": 0.5}),
        ({"reward": "curriculum", "epoch": 1}, 1.0, {"acc": 1.0, "ncr": 0.0}),
        ({"on_unscorable": -1}, 0.75, {"acc": 0.5, "ncr": 0.25, "unscorable": 0.0}),
    ],
)
def test_parts_sum_to_the_reward(
    address: str, settings: dict[str, Any], reward: float, parts: dict[str, float]
) -> None:
    reply = verify({"address": address, **settings}, HALF, **ROW)
    assert reply["reward"] == pytest.approx(reward)
    assert reply["reward_components"] == pytest.approx(parts)
    assert sum(reply["reward_components"].values()) == reply["reward"]
    assert (reply["acc"], reply["ncr"], reply["status"]) == (1.0, 0.5, "OK"), "no word of the tool"
    assert reply["problem_id"] == "toy/1", "columns come back, as NeMo Gym expects"
    assert not reply.get("mask_sample")
    assert "instance_config" not in reply


def test_the_epoch_planned_with_the_data(address: str) -> None:
    settings = {"address": address, "reward": "curriculum"}
    assert verify(settings, HALF, **ROW, epoch=0)["reward"] == 0.5
    assert verify(settings, HALF, **ROW, epoch=1)["reward"] == 1.0


AWAY = {"address": "127.0.0.1:1", "on_unavailable": "raise", "timeout_s": 0.5}


@pytest.mark.parametrize(
    ("settings", "row", "kind", "reason"),
    [
        ({}, {"problem_id": "nobody"}, "consensuspr:unknown_problem", "ended with UNKNOWN_PROBLEM"),
        ({}, {"problem_id": "bare"}, "consensuspr:no_nodes", "problem 'bare' ended with NO_NODES"),
        (AWAY, ROW, "transport_unreachable", "127.0.0.1:1"),
    ],
)
@masks
def test_nothing_trains_on_a_rollout_without_a_reward(
    address: str, settings: dict[str, Any], row: dict[str, Any], kind: str, reason: str
) -> None:
    row = {**row, "instance_config": {"seed": 1}}
    reply = verify({"address": address, **settings}, HALF, **row)
    assert (reply["mask_sample"], reply["failure_kind"]) == (True, kind)
    assert reason in reply["failure_reason"]
    assert reply["instance_config"] == {"seed": 1, "mask_sample": True}, "where NeMo RL looks"
    assert reply["reward_components"] == {"acc": 0.0, "ncr": 0.0}, "parts of every sample"
    assert (reply["acc"], reply["ncr"]) == (None, None)
    right = verify({"address": address}, HALF, **ROW)
    body = {
        "verify_responses": [
            {**right, "_ng_task_index": 0, "_ng_rollout_index": 0},
            {**reply, "_ng_task_index": 1, "_ng_rollout_index": 0},
        ]
    }
    with client({"address": address}) as web:
        metrics = web.post("/aggregate_metrics", json=body).json()["agent_metrics"]
    assert metrics["mean/reward"] == 0.75, "and no mean counts it as 0"


@masks
def test_a_second_verdict_replaces_the_failure(address: str) -> None:
    failed = {"mask_sample": True, "failure_kind": "verifier_error", "failure_reason": "…"}
    reply = verify({"address": address}, HALF, **ROW, reward=0.0, **failed)
    assert (reply["reward"], reply["mask_sample"], reply["failure_reason"]) == (0.75, False, None)


@pytest.mark.parametrize(
    ("has_mask", "settings", "row", "sentence"),
    [
        (True, {"reward": "curriculum"}, ROW, "NeMo Gym passes a verifier neither step nor epoch"),
        (True, {"rewrad": "max"}, ROW, "unknown setting 'rewrad' in consensuspr"),
        (True, {}, {}, "the row names no problem"),
        (True, {"max_unscorable": 0}, {"problem_id": "nobody"}, "more than max_unscorable=0"),
        (True, {"expect_digest": "sha256:" + 64 * "0"}, ROW, "digest"),
        (True, {"dataset": "other"}, ROW, "other"),
        # Nobody would read that the reward is no measurement.
        (False, {}, {"problem_id": "nobody"}, "ended with UNKNOWN_PROBLEM"),
        (False, AWAY, ROW, "127.0.0.1:1"),
    ],
)
def test_what_every_rollout_would_have_and_what_nothing_can_mask_is_an_error(
    address: str, has_mask: bool, settings: dict[str, Any], row: dict[str, Any], sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(adapter, "_HAS_MASK", has_mask)
    with pytest.raises(Exception, match=sentence):
        verify({"address": address, **settings}, HALF, **row)
