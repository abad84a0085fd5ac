"""slime's requests, of exactly its shape, against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.conftest import DUCKS

if TYPE_CHECKING:
    from tests.http.conftest import InProcessServer

HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 18<|im_end|>"
CHAT = [
    {"role": "system", "content": "You are a careful mathematician."},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": DUCKS}]},
]


def request_of(prompt: Any = DUCKS, response: Any = HALF, label: Any = "18") -> dict[str, Any]:
    return {"prompt": prompt, "response": response, "label": label}


@pytest.mark.parametrize("prompt", [DUCKS, f"<|user|>\n{DUCKS}\n<|assistant|>\n", CHAT])
@pytest.mark.parametrize("label", ["18", None, {"problem_id": "ducks"}])
def test_an_object_for_reward_key(server: InProcessServer, prompt: Any, label: Any) -> None:
    reply = server.post("/slime", request_of(prompt, label=label))
    assert reply.code == 200
    assert reply.body == {
        "reward": 0.75,
        "acc": 1.0,
        "ncr": 0.5,
        "ncr_raw": 0.5,
        "guard": 1.0,
        "num_nodes": 2,
        "num_matched": 1,
        "status": "OK",
        "message": "",
        "unscorable": False,
    }


def test_a_number_without_reward_key(server: InProcessServer) -> None:
    reply = server.post("/slime?reply=number&reward=linear&alpha=0", request_of())
    assert (reply.code, reply.body) == (200, 0.5)


def test_a_label_may_be_left_out(server: InProcessServer) -> None:
    request = request_of()
    del request["label"]
    assert server.post("/slime", request).body["reward"] == 0.75


def test_what_cannot_be_scored(server: InProcessServer) -> None:
    refused = server.post("/slime?reply=number", request_of("hello"))
    assert refused.code == 422
    assert [told["status"] for told in refused.body["unscorable"]] == ["NO_NODES"]
    assert server.post("/slime?reply=number&on_unscorable=-1", request_of("hello")).body == -1.0
    reply = server.post("/slime?on_unscorable=-1", request_of("hello"))
    assert reply.body == {
        "reward": -1.0,
        "acc": 1.0,
        "ncr": None,
        "ncr_raw": None,
        "guard": None,
        "num_nodes": 0,
        "num_matched": 0,
        "status": "NO_NODES",
        "message": "the prompt holds no problem of dataset 'default'",
        "unscorable": True,
    }


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"nothing", "the body is no JSON"),
        ({"response": "r"}, "the body has no prompt"),
        ({"prompt": "p"}, "the body has no response"),
        (request_of(response=None), "response must be a string, got null"),
        (request_of(response=["r"]), 'response must be a string, got ["r"]'),
        (request_of(prompt=7), "prompt must be a text or a list of messages, got int"),
        (request_of(prompt=["p"]), "a message of prompt must have a content"),
        (request_of(prompt=[{"role": "user"}]), "a message of prompt must have a content"),
        (request_of(label=[18]), "label must be a string, a number or an object, got list"),
    ],
)
def test_a_malformed_request_is_a_bad_one(
    server: InProcessServer, body: object, sentence: str
) -> None:
    reply = server.post("/slime", body)
    assert reply.code == 400
    assert sentence in reply.body["error"]


def test_the_settings_of_the_other_shape_are_unknown_here(server: InProcessServer) -> None:
    assert server.post("/slime?scores=acc", request_of()).code == 400
    assert server.post("/openrlhf?reply=number", request_of()).code == 400
