"""A chat model against a server that misbehaves, its budget, and the models file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from consensusbench.llm import (
    Budget,
    ChatModel,
    Message,
    ModelSettings,
    Reply,
    ask_key,
    read_models,
)
from consensuspr.errors import (
    BudgetSpent,
    InputError,
    ModelError,
    ModelNoAccess,
    ModelRefused,
    ModelUnavailable,
)
from tests.consensusbench.openai_server import (
    Behaviour,
    Garbage,
    HangUp,
    OpenAIServer,
    Refuse,
    Say,
    Trickle,
)

HELLO = [Message("user", "hello")]


class ModelBench:
    """Makes models that ask a test server."""

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server

    def model(self, budget: Budget | None = None, **changes: Any) -> ChatModel:
        """Return a model; ``changes`` to its settings."""
        settings = {"max_retries": 3, "timeout_s": 5.0, **changes}
        return ChatModel(ModelSettings("toy", base_url=self.server.url, **settings), budget)

    async def ask(self, budget: Budget | None = None, **changes: Any) -> Reply:
        """Ask a new model."""
        async with self.model(budget, **changes) as model:
            return await model.ask(HELLO)


@pytest.fixture
def bench(openai_server: OpenAIServer) -> ModelBench:
    """Models and their server, of this test's own."""
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    return ModelBench(openai_server)


async def test_a_reply_has_usage_cost_and_reasoning(bench: ModelBench) -> None:
    bench.server.script(Say("Answer: 5", reasoning="hm"), Say("Answer: 5", usage=False))
    reply = await bench.ask(price_in=3.0, price_out=12.0)
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("Answer: 5", "hm", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (2, 3)
    assert reply.cost == pytest.approx((2 * 3 + 3 * 12) / 1e6)
    assert (reply.model, reply.attempts) == ("toy", 1)
    budget = Budget()
    uncounted = await bench.ask(budget, price_in=3.0, price_out=12.0)
    assert uncounted.completion_tokens is None and budget.cost == uncounted.cost
    assert uncounted.cost == pytest.approx((2 * 3 + 3 * 12) / 1e6)  # estimated


async def test_a_request_carries_the_settings(bench: ModelBench) -> None:
    model = bench.model(temperature=2.0, top_p=0.9, max_tokens=50, extra_body={"top_k": 7})
    async with model:
        await model.ask([Message("system", "be brief"), Message("user", "hi")], seed=4)
        await model.ask(HELLO, temperature=0.0)
    first, second = (asked.body for asked in bench.server.asked)
    assert first == {
        "model": "toy",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ],
        "temperature": 2.0,
        "top_p": 0.9,
        "max_tokens": 50,
        "seed": 4,
        "top_k": 7,
    }
    assert second["temperature"] == 0.0
    assert bench.server.asked[0].key == "sk-of-the-tests"


@pytest.mark.parametrize("behaviour", [Refuse(429), Refuse(503), HangUp()], ids=repr)
async def test_passing_errors_are_retried(bench: ModelBench, behaviour: Behaviour) -> None:
    bench.server.script(behaviour, behaviour, Say("fine"))
    reply = await bench.ask()
    assert (reply.text, reply.attempts, len(bench.server.asked)) == ("fine", 3, 3)


@pytest.mark.parametrize(
    ("behaviour", "kind", "attempts", "sentence"),
    [
        (Refuse(400, "too long"), ModelRefused, 1, "HTTP 400: too long"),
        (Refuse(401, "bad key sk-of-the-tests"), ModelNoAccess, 1, "HTTP 401: bad key …"),
        (Refuse(429, "pay", code="insufficient_quota"), ModelNoAccess, 2, "HTTP 429: pay"),
        (Refuse(500, "on fire"), ModelUnavailable, 2, "HTTP 500: on fire (2 attempts)"),
        (HangUp(), ModelUnavailable, 2, "no connection: "),
        (Say("x", after_s=5), ModelUnavailable, 2, "no reply within 0.2 s"),
        (Trickle(), ModelUnavailable, 2, "no reply within 0.2 s"),
        (Garbage(), ModelUnavailable, 1, "the reply is no chat completion (JSON): '{"),
        (Say("x", choices=False), ModelUnavailable, 1, "the reply is no chat completion (choices)"),
        (Say("x", finish_reason=None), ModelUnavailable, 1, "(choices.0.finish_reason)"),
    ],
    ids=repr,
)
async def test_other_errors_are_one_sentence(
    bench: ModelBench, behaviour: Behaviour, kind: type[ModelError], attempts: int, sentence: str
) -> None:
    bench.server.script(then=behaviour)
    with pytest.raises(kind) as failure:
        await bench.ask(
            max_retries=1, timeout_s=0.2 if isinstance(behaviour, Say | Trickle) else 5.0
        )
    message = str(failure.value)
    assert message.startswith("toy at 127.0.0.1:") and sentence in message
    assert "sk-of-the-tests" not in message
    assert len(bench.server.asked) == attempts


async def test_requests_in_flight_do_not_run_past_the_budget_together(bench: ModelBench) -> None:
    bench.server.script(then=Say("x" * 40, after_s=0.02))
    budget = Budget(max_cost=0.001)
    async with bench.model(budget, price_in=0.0, price_out=10.0, max_tokens=30) as model:
        replies = await asyncio.gather(
            *(model.ask(HELLO) for _ in range(20)), return_exceptions=True
        )
    assert {type(reply) for reply in replies} == {Reply, BudgetSpent}
    charged = len(bench.server.delivered) * 10 * 10 / 1e6
    assert 0.0007 < charged <= 0.001 and budget.cost == pytest.approx(charged)
    assert "the next request could exceed the limit of $0.001" in str(replies[-1])


async def test_a_stopped_budget_begins_nothing_and_a_cancelled_request_is_given_back(
    bench: ModelBench,
) -> None:
    bench.server.script(then=Say("x", after_s=0.2))
    budget = Budget(max_cost=1.0, max_requests=3)
    async with bench.model(budget, price_in=0.0, price_out=400.0, max_tokens=2000) as model:
        first = asyncio.ensure_future(model.ask(HELLO))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(model.ask(HELLO))
        await asyncio.sleep(0.05)
        first.cancel()
        assert (await second).text == "x"
        budget.stop("interrupted")
        with pytest.raises(BudgetSpent, match="interrupted"):
            await model.ask(HELLO)
    later = Budget(max_requests=1)
    later.charge_earlier(Reply("x", "m", "stop"))
    with pytest.raises(BudgetSpent, match="the limit of 1 requests is reached"):
        await bench.ask(later)
    with pytest.raises(InputError, match="max_cost must be 0 or more"):
        Budget(max_cost=float("nan"))


def test_a_key_stands_for_all_that_decides_the_reply() -> None:
    settings = ModelSettings("m", temperature=1.0)
    base = ask_key(settings, HELLO)
    # Replies that earlier releases kept are found again.
    assert base == "118fd11d0c09c2502d9343d3cc20168c"
    assert base == ask_key(ModelSettings("m", temperature=1.0, concurrency=99, price_in=1), HELLO)
    assert base == ask_key(settings, HELLO, temperature=1.0)
    different = [
        ask_key(ModelSettings("m", temperature=2.0), HELLO),
        ask_key(ModelSettings("n", temperature=1.0), HELLO),
        ask_key(ModelSettings("m", temperature=1.0, max_tokens=5), HELLO),
        ask_key(ModelSettings("m", temperature=1.0, extra_body={"top_k": 1}), HELLO),
        ask_key(settings, [Message("system", "hello")]),
        ask_key(settings, HELLO, sample=1),
        ask_key(settings, HELLO, seed=1),
    ]
    assert len({base, *different}) == 1 + len(different)


FILE = """
[defaults]
temperature = 1.0
max_tokens = 100

[[models]]
model = "big"
price_in = 0.25

[[models]]
model = "Qwen/Qwen3-32B"
label = "qwen"
base_url = "http://127.0.0.1:8000/v1"
temperature = "default"
extra_body = { top_k = 20 }
"""


def test_models_come_from_names_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(FILE)
    defaults = {"temperature": 2.0, "max_tokens": None, "concurrency": 4}
    names = ["small", "org/m@v2@https://me:pw@host:1/v1"]
    found = read_models(names, tmp_path / "m.toml", defaults)
    assert [(each.name, each.base_url, each.temperature, each.max_tokens) for each in found] == [
        ("small", None, 2.0, None),
        ("org/m@v2", "https://me:pw@host:1/v1", 2.0, None),
        ("big", None, 1.0, 100),
        ("qwen", "http://127.0.0.1:8000/v1", None, 100),
    ]
    assert all(each.concurrency == 4 for each in found)
    assert found[3].provenance()["extra_body"] == {"top_k": 20}
    assert "base_url" not in found[3].provenance()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[[models]]\nmodel = "a"\n[[models]]\nmodel = "a"', "two models have the name 'a'"),
        ('[[models]]\nmodel = "a"\nmax_token = 5', "unknown key 'max_token'; known are model,"),
        ('[[models]]\nmodel = "a"\nbase_url = "gpu:8000/v1"', "base_url of a must begin with http"),
        ('[[models]]\nmodel = "a"\ntop_p = 2', "top_p of a must be at most 1, got 2"),
        ("[[models]]\nlabel = 'a'", "a model has an empty name"),
        ("[[model]]\nmodel = 'a'", r"must hold \[\[models\]\] tables"),
        ("models = [", "is not TOML"),
    ],
)
def test_a_wrong_models_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_models([], tmp_path / "m.toml", {})
