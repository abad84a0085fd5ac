"""A chat model against a real server that misbehaves in every way it knows, with a journal too."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.llm import (
    Budget,
    BudgetSpent,
    ChatModel,
    Journal,
    Message,
    ModelError,
    ModelNoAccess,
    ModelRefused,
    ModelSettings,
    ModelUnavailable,
    Reply,
    ask_key,
    ask_once,
    spent_on,
)
from consensuspr.errors import InputError
from tests.consensusbench.llm.conftest import HELLO
from tests.consensusbench.openai_server import Asked, Behaviour, Garbage, HangUp, Refuse, Say

if TYPE_CHECKING:
    from tests.consensusbench.llm.conftest import ModelBench

# 128 characters: eight chunks.
TEXT = "We add: 2 + 3 = 5, \u2028 fünf, 五.\n" * 4 + "Answer: 5"


async def test_a_reply_comes_with_all_that_the_server_says(bench: ModelBench) -> None:
    bench.server.script(Say(TEXT, reasoning="hm"))
    reply = await bench.ask(price_in=3.0, price_out=12.0)
    tokens = -(-(len(TEXT) + 2) // 4)
    assert (reply.text, reply.reasoning, reply.finish_reason) == (TEXT, "hm", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (2, tokens)
    assert reply.cost == pytest.approx((2 * 3 + tokens * 12) / 1e6)
    assert (reply.model, reply.request_id, reply.attempts) == ("toy", "req-0", 1)


async def test_the_request_says_what_was_asked_for(bench: ModelBench) -> None:
    model = bench.model(temperature=2.0, top_p=0.9, max_tokens=50, extra_body={"top_k": 7})
    async with model:
        await model.ask([Message("system", "be brief"), Message("user", "hi")], seed=4)
        await model.ask(HELLO, temperature=0.0, json_schema={"type": "object"})
    first, second = (asked.body for asked in bench.server.asked)
    assert first == {
        "model": "toy",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 2.0,
        "top_p": 0.9,
        "max_tokens": 50,
        "seed": 4,
        "top_k": 7,
    }
    assert second["temperature"] == 0.0
    assert second["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert bench.server.asked[0].key == "sk-of-the-tests"


@pytest.mark.parametrize(
    "trouble",
    [
        Refuse(429),
        Refuse(429, headers={"retry-after": "0.05"}),
        Refuse(408),
        Refuse(409),
        Refuse(500),
        Refuse(503),
        HangUp(),
        Garbage(),
        Garbage(b"[1]"),
        Garbage(b"<html>busy</html>", "text/html"),
        Garbage(b"data: {broken\n\n", "text/event-stream"),
        Garbage(b"", "text/event-stream"),
        Say(TEXT, cut_after=0),
        Say(TEXT, cut_after=3),
        Say(TEXT, broken_after=2),
        Say(TEXT, error_after=2),
        Say(TEXT, finish_reason=None),
        Say(TEXT, choices=False),
        Say(TEXT, choices=False, whole=True),
    ],
    ids=repr,
)
async def test_what_may_pass_is_asked_again(bench: ModelBench, trouble: Behaviour) -> None:
    bench.server.script(trouble, trouble, Say(TEXT))
    reply = await bench.ask()
    assert (reply.text, reply.attempts, len(bench.server.asked)) == (TEXT, 3, 3)


@pytest.mark.parametrize(
    ("trouble", "kind", "sentence"),
    [
        (Refuse(400, "too long"), ModelRefused, "HTTP 400: too long"),
        (Refuse(413), ModelRefused, "HTTP 413"),
        (Refuse(422), ModelRefused, "HTTP 422"),
        (Refuse(401, "bad key sk-of-the-tests"), ModelNoAccess, "HTTP 401: bad key …"),
        (Refuse(402), ModelNoAccess, "HTTP 402"),
        (Refuse(403), ModelNoAccess, "HTTP 403"),
        (Refuse(404, "no such model"), ModelNoAccess, "HTTP 404: no such model"),
        (Refuse(429, "pay", code="insufficient_quota"), ModelNoAccess, "HTTP 429: pay"),
        (Refuse(503, headers={"retry-after": "3600"}), ModelUnavailable, "asks to wait 3,600 s"),
    ],
    ids=repr,
)
async def test_what_cannot_pass_is_asked_once(
    bench: ModelBench, trouble: Behaviour, kind: type[ModelError], sentence: str
) -> None:
    bench.server.script(then=trouble)
    with pytest.raises(kind) as failure:
        await bench.ask()
    assert sentence in str(failure.value) and "sk-of-the-tests" not in str(failure.value)
    assert len(bench.server.asked) == 1


async def test_a_refusal_for_moderation_is_about_one_request(bench: ModelBench) -> None:
    bench.server.script(Say("fine"), Refuse(403, "flagged"))
    async with bench.model() as model:
        await model.ask(HELLO)
        with pytest.raises(ModelRefused, match="flagged"):
            await model.ask(HELLO)


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (Refuse(500, "on fire"), "HTTP 500: on fire"),
        (Say(TEXT, cut_after=3), "the connection broke after 48 characters"),
        (Say(TEXT, finish_reason=None), "the reply ended before its end, after"),
        (Garbage(), "the reply is broken JSON"),
        (HangUp(), "no connection: "),
        (Say(TEXT, first_byte_s=5), "no sign of life for 0.2 s"),
        (Say(TEXT, chunk_s=5), "no sign of life for 0.2 s"),
    ],
    ids=repr,
)
async def test_attempts_are_bounded_and_the_last_one_says_why(
    bench: ModelBench, trouble: Behaviour, sentence: str
) -> None:
    bench.server.script(then=trouble)
    timeout_s = 0.2 if "sign of life" in sentence else 5.0
    with pytest.raises(ModelUnavailable) as failure:
        await bench.ask(max_retries=1, timeout_s=timeout_s)
    assert sentence in str(failure.value) and str(failure.value).endswith("(attempt 2 of 2)")
    assert len(bench.server.asked) == 2


async def test_a_slow_reply_survives_and_an_endless_one_does_not(bench: ModelBench) -> None:
    bench.server.script(then=Say(TEXT, first_byte_s=0.2, chunk_s=0.2))
    # Longer in all than the silence that is allowed.
    assert (await bench.ask(timeout_s=1.0, max_retries=0)).seconds > 1.0
    with pytest.raises(ModelUnavailable, match=r"took over 0\.3 s"):
        await bench.ask(total_timeout_s=0.3, max_retries=0)


async def test_servers_that_count_nothing_or_do_not_stream_are_understood(
    bench: ModelBench,
) -> None:
    bench.server.script(Say(TEXT, usage=False), Say(TEXT, whole=True), Say(TEXT, usage=False))
    budget = Budget()
    async with bench.model(budget, price_in=1.0, price_out=1.0) as model:
        uncounted = await model.ask(HELLO)
        assert (uncounted.text, uncounted.completion_tokens, uncounted.cost) == (TEXT, None, None)
        # The budget goes on by an estimate.
        assert budget.spent.tokens >= len(TEXT) // 4 and budget.spent.cost > 0
        whole = await model.ask(HELLO)
        assert (whole.text, whole.completion_tokens) == (TEXT, -(-len(TEXT) // 4))


async def test_a_cut_between_end_and_counts_costs_the_counts_alone(bench: ModelBench) -> None:
    body = b'data: {"id": "x", "choices": [{"delta": {"content": "5"}, "finish_reason": "stop"}]}\n'
    bench.server.script(Garbage(body, "text/event-stream"))
    reply = await bench.ask()
    assert (reply.text, reply.completion_tokens, reply.attempts) == ("5", None, 1)


@pytest.mark.parametrize("limit", [{"timeout_s": 0.5}, {"total_timeout_s": 0.5}])
async def test_a_server_that_hangs_after_the_end_has_replied(bench: ModelBench, limit: Any) -> None:
    bench.server.script(Say(TEXT, hang_s=60))
    reply = await bench.ask(max_retries=0, **limit)
    assert (reply.text, reply.completion_tokens) == (TEXT, -(-len(TEXT) // 4))


async def test_a_hint_to_wait_is_heeded_by_all_requests(bench: ModelBench) -> None:
    arrived: list[float] = []

    def respond(asked: Asked) -> Behaviour:
        arrived.append(time.monotonic())
        busy = Refuse(429, headers={"retry-after": "0.4"})
        return busy if len(arrived) == 1 else Say("fine")

    bench.server.respond = respond
    async with bench.model(concurrency=1) as model:
        await asyncio.gather(*(model.ask(HELLO) for _ in range(3)))
    assert len(arrived) == 4 and min(arrived[1:]) - arrived[0] >= 0.39


async def test_no_more_requests_are_in_flight_than_allowed_and_connections_are_used_again(
    bench: ModelBench,
) -> None:
    bench.server.script(then=Say("x", first_byte_s=0.05))
    async with bench.model(concurrency=3) as model:
        await asyncio.gather(*(model.ask(HELLO) for _ in range(12)))
    assert (bench.server.most_at_once, bench.server.connections) == (3, 3)


async def test_requests_a_minute_are_kept(bench: ModelBench) -> None:
    async with bench.model(requests_per_minute=600) as model:
        began = time.monotonic()
        await asyncio.gather(*(model.ask(HELLO) for _ in range(4)))
    assert time.monotonic() - began >= 0.3


async def test_the_budget_is_never_exceeded_by_requests_in_flight(bench: ModelBench) -> None:
    bench.server.script(then=Say("x" * 40, first_byte_s=0.02))
    budget = Budget(max_cost=0.001)
    model = bench.model(budget, price_in=0.0, price_out=10.0, max_tokens=30, concurrency=16)
    async with model:
        replies = await asyncio.gather(
            *(model.ask(HELLO) for _ in range(40)), return_exceptions=True
        )
    assert {type(reply) for reply in replies} == {Reply, BudgetSpent}
    charged = sum(asked.charged or 0 for asked in bench.server.charged) * 10 / 1e6
    assert 0.0007 < charged <= 0.001 and budget.spent.cost == pytest.approx(charged)


async def test_what_was_cut_off_is_charged_to_the_budget_and_told_with_the_reply(
    bench: ModelBench,
) -> None:
    bench.server.script(Say("x" * 160, cut_after=5), Refuse(500), Say("x" * 16, usage=False))
    budget = Budget()
    reply = await bench.ask(budget, price_in=1.0, price_out=2.0)
    assert (reply.cost, reply.attempts, budget.spent.requests, budget.in_flight) == (None, 3, 3, 0)
    # 80 characters of the first and 16 of the last.
    assert budget.spent.tokens >= (80 + 16) // 4
    assert spent_on(reply) == budget.spent
    assert spent_on(Reply.from_row(reply.to_row())).cost > 0


async def test_stopping_ends_waits_but_not_what_is_in_flight(bench: ModelBench) -> None:
    bench.server.script(Refuse(429, headers={"retry-after": "60"}), then=Say("x", chunk_s=0.3))
    budget = Budget()
    async with bench.model(budget, initial_backoff_s=30.0) as waiting, bench.model(budget) as busy:
        began = time.monotonic()
        first = asyncio.ensure_future(waiting.ask(HELLO))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(busy.ask(HELLO))
        await asyncio.sleep(0.1)
        budget.stop("interrupted")
        with pytest.raises(BudgetSpent, match="interrupted"):
            await first
        assert (await second).text == "x"
        with pytest.raises(BudgetSpent, match="interrupted"):
            await busy.ask(HELLO)
    assert time.monotonic() - began < 25


async def test_a_cancelled_request_gives_its_reservation_back(bench: ModelBench) -> None:
    bench.server.script(then=Say(TEXT, chunk_s=0.2))
    budget = Budget()
    async with bench.model(budget) as model:
        task = asyncio.ensure_future(model.ask(HELLO))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert budget.in_flight == 0 and budget.spent.tokens > 0


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="environment variable MY_KEY holds no key for m"):
        ChatModel(ModelSettings("m", api_key_env="MY_KEY"))


async def test_a_server_of_ones_own_needs_none(
    bench: ModelBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert (await bench.ask()).text == "Answer: 0"
    assert bench.server.asked[0].key == "none"


async def test_a_question_is_asked_once_over_runs(bench: ModelBench, tmp_path: Path) -> None:
    bench.server.respond = lambda asked: Say(f"reply {asked.number}", reasoning="hm")
    replies: list[list[Reply]] = []
    for _ in range(2):
        with Journal(tmp_path / "j", "nodes", {}) as journal:
            async with bench.model(price_in=1.0, price_out=1.0) as model:
                first = await ask_once(model, journal, HELLO)
                other = await ask_once(model, journal, HELLO, sample=1)
                replies.append([first, other])
    assert replies[0] == replies[1] and replies[0][0].text != replies[0][1].text
    assert len(bench.server.asked) == 2


async def test_a_reply_that_came_is_kept_although_nobody_waits_any_more(
    bench: ModelBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "j", "nodes", {}) as journal:
        slow = journal.append

        def append(*record: object, **options: object) -> None:
            time.sleep(0.3)
            slow(*record, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(journal, "append", append)
        async with bench.model() as model:
            task = asyncio.ensure_future(ask_once(model, journal, HELLO))
            while not bench.server.delivered:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(journal) == 1


def test_a_key_stands_for_all_that_decides_the_reply() -> None:
    settings = ModelSettings("m", temperature=1.0)
    hello = [Message("user", "hello")]
    base = ask_key(settings, hello)
    assert base == ask_key(ModelSettings("m", temperature=1.0, concurrency=99, price_in=1), hello)
    assert base == ask_key(settings, hello, temperature=1.0)
    others = [
        ask_key(ModelSettings("m", temperature=2.0), hello),
        ask_key(ModelSettings("n", temperature=1.0), hello),
        ask_key(ModelSettings("m", temperature=1.0, max_tokens=5), hello),
        ask_key(ModelSettings("m", temperature=1.0, extra_body={"top_k": 1}), hello),
        ask_key(settings, [Message("system", "hello")]),
        ask_key(settings, hello, sample=1),
        ask_key(settings, hello, seed=1),
        ask_key(settings, hello, json_schema={"type": "object"}),
        ask_key(settings, hello, temperature=0.0),
    ]
    assert len({base, *others}) == 1 + len(others)
