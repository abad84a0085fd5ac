"""``ChatModel``: one question, one reply, however the server misbehaves; asked once by a journal.

Why an attempt failed decides whether another can help:

================================================  =========  =====================
what happened                                     repeated   else
================================================  =========  =====================
no connection, cut or silent stream, broken JSON  yes        ModelUnavailable
408, 409, 425, 429, 5xx                           yes        ModelUnavailable
429 because the account has no credit, 402        no         ModelNoAccess
401, 404                                          no         ModelNoAccess
403 before the first reply                        no         ModelNoAccess
403 later (moderation), 400, 413, 422, other 4xx  no         ModelRefused
================================================  =========  =====================

Replies are streamed, which is what survives slow models: a silent connection is told from a slow
one, proxies see traffic, and a cut is noticed because no ``finish_reason`` came.

Two parts of ``openai`` are not used.  Its retries: they end where the body begins, so that a cut
stream needs others, and they know neither budget nor pace.  Its reader of server-sent events: it
makes an object of every token, 94 µs against 3, which no core can do for 10,000 tokens a second,
and believes what servers send; here what a hostile or broken one can make this hold is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self

from consensusbench import require
from consensusbench.llm.limits import Budget, Pace, Spent, likely_tokens, most_tokens
from consensusbench.llm.types import Message, ModelSettings, Reply, public_url
from consensusbench.store import Journal, digest, write_down
from consensuspr.console import one_line
from consensuspr.errors import InputError, ModelError, ModelNoAccess, ModelRefused, ModelUnavailable

REPEATED_CODES = frozenset({408, 409, 425, 429})
NO_ACCESS_CODES = frozenset({401, 402, 404})
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

CONNECT_TIMEOUT_S = 15.0
# For the few bytes that end a body; a connection that brings none is closed instead.
DRAIN_S = 2.0
MAX_BACKOFF_S = 60.0
# A server that asks for more is treated as gone: nobody wants a silent run for an hour.
MAX_RETRY_AFTER_S = 600.0
MAX_LINE_BYTES = 16 << 20
MAX_TEXT_CHARS = 16 << 20
# What a reply is taken for where it has no limit and none has been seen.
FIRST_GUESS_TOKENS = 2048
# A placeholder such as "x" is no secret, and cutting it out would spoil the sentence.
SHORTEST_SECRET = 8
# Servers of one's own ask for no key, but openai's client insists on one.
NO_KEY = "none"


@dataclass(slots=True, eq=False)
class AttemptFailed(Exception):
    """One attempt came to nothing; ``kind`` is what it is where it is not repeated."""

    reason: str
    kind: type[ModelError] = ModelUnavailable
    retry_after_s: float | None = None

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        if self.retry_after_s is not None and self.retry_after_s > MAX_RETRY_AFTER_S:
            return False
        return self.kind is ModelUnavailable


def backoff_s(
    failure: AttemptFailed,
    attempts: int,
    initial_s: float,
    uniform: Callable[[float, float], float] = random.uniform,
) -> float:
    """Return how long to wait after the ``attempts``-th attempt.

    Drawn evenly from nothing to a bound that doubles ("full jitter"), after the server's hint.
    """
    # 2 ** 30 times any sensible start is past any sensible end; more would overflow.
    ceiling = min(MAX_BACKOFF_S, initial_s * 2.0 ** min(attempts - 1, 30))
    return (failure.retry_after_s or 0.0) + uniform(0.0, ceiling)


def retry_after_s(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the server's hint in seconds: ``retry-after-ms``, seconds, or an HTTP date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _from_status(
    code: int, headers: Mapping[str, str], body: object, answered_before: bool
) -> AttemptFailed:
    """Return what a status other than 200 means; ``body`` is an error as openai unpacks it."""
    error, reason = _error(body), f"HTTP {code}{_said(body)}"
    if code == 429 and (error.get("code") or error.get("type")) in NO_CREDIT:
        return AttemptFailed(reason, ModelNoAccess)
    if code in REPEATED_CODES or code >= 500:
        hint = retry_after_s(headers)
        if hint is not None and hint > MAX_RETRY_AFTER_S:
            reason += f" (asks to wait {hint:,.0f} s, the limit is {MAX_RETRY_AFTER_S:,.0f} s)"
        return AttemptFailed(reason, ModelUnavailable, hint)
    if code in NO_ACCESS_CODES or (code == 403 and not answered_before):
        return AttemptFailed(reason, ModelNoAccess)
    return AttemptFailed(reason, ModelRefused)


def _from_event(error: object) -> AttemptFailed:
    """Return what an error inside a stream means: refused for a 4xx, else to be repeated."""
    code = error.get("code") if isinstance(error, dict) else None
    refused = isinstance(code, int) and 400 <= code < 500 and code not in REPEATED_CODES
    kind = ModelRefused if refused else ModelUnavailable
    return AttemptFailed(f"the stream reports an error{_said(error)}", kind)


def _said(body: object) -> str:
    """Return what the server said about it, as the end of a clause."""
    message = _error(body).get("message") if isinstance(body, dict) else body
    return f": {one_line(message, 300)}" if isinstance(message, str) and message.strip() else ""


def _error(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body


class ReplyParts:
    """The parts of one reply as they come in; what is of the wrong kind is passed over."""

    def __init__(self) -> None:
        self.model = ""
        self.reply_id = ""
        self.finish_reason = ""
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._chars = 0

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str | None:
        """What was thought so far, None where nothing was sent."""
        return "".join(self._reasoning) or None

    def add(self, event: object) -> None:
        """Take in one event of a stream, or a whole reply.

        Raises:
            AttemptFailed: it is no such thing, it reports an error, or the reply has no end.
        """
        if not isinstance(event, dict):
            raise AttemptFailed("the reply holds something that is no JSON object")
        if event.get("error"):
            raise _from_event(event["error"])
        self.model = _string(event.get("model")) or self.model
        self.reply_id = _string(event.get("id")) or self.reply_id
        usage, choices = event.get("usage"), event.get("choices")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
            completion = usage.get("completion_tokens")
            self.completion_tokens = _count(completion, self.completion_tokens)
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._add_choice(choices[0])

    def _add_choice(self, choice: dict[str, Any]) -> None:
        said = choice.get("delta") or choice.get("message")
        if isinstance(said, dict):
            self._keep(self._text, _string(said.get("content")) or _string(said.get("refusal")))
            thought = _string(said.get("reasoning_content")) or _string(said.get("reasoning"))
            self._keep(self._reasoning, thought)
        self.finish_reason = _string(choice.get("finish_reason")) or self.finish_reason

    def _keep(self, parts: list[str], part: str) -> None:
        if part:
            parts.append(part)
            self._chars += len(part)
            if self._chars > MAX_TEXT_CHARS:
                raise AttemptFailed(
                    f"the reply is longer than {MAX_TEXT_CHARS:,} characters", ModelRefused
                )


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object, known: int | None) -> int | None:
    """Return a number of tokens; what is known where there is none."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if good and isinstance(value, int) else known


async def read_events(body: AsyncIterator[bytes], parts: ReplyParts) -> None:
    """Take in a stream of server-sent events up to its end.

    Lines end at LF alone: readers that split where Unicode sees a line end break JSON that holds
    U+2028 unescaped.

    Raises:
        AttemptFailed: broken JSON, a line that is too long, an error event.
    """
    rest = bytearray()
    async for block in body:
        # Only the block is searched: a line that comes in a thousand pieces is not read anew
        # with each.
        first, *others = block.split(b"\n")
        rest += first
        for other in others:
            line, rest = rest, bytearray(other)
            if _take_line(line, parts):
                # A connection is used again only once its body is over.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_S):
                        async for _ in body:
                            pass
                return
        if len(rest) > MAX_LINE_BYTES:
            raise AttemptFailed(f"the reply has a line of over {MAX_LINE_BYTES:,} bytes")
    _take_line(rest, parts)


async def read_whole(body: AsyncIterator[bytes], parts: ReplyParts) -> None:
    """Take in the body of a server that answers in one piece although it was asked to stream."""
    whole = bytearray()
    async for block in body:
        whole += block
        if len(whole) > MAX_LINE_BYTES:
            raise AttemptFailed(f"the reply has over {MAX_LINE_BYTES:,} bytes", ModelRefused)
    parts.add(_parsed(whole))


def _take_line(line: bytearray, parts: ReplyParts) -> bool:
    """Take in one line; say whether it was the end mark."""
    if not line.startswith(b"data:"):
        return False  # comments that keep a connection alive, event names, blank lines
    data = line[len(b"data:") :].strip()
    if data == b"[DONE]":
        return True
    if data:
        parts.add(_parsed(data))
    return False


def _parsed(data: bytearray) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        start = data[:60].decode("utf-8", "replace")
        raise AttemptFailed(f"the reply is broken JSON: {start!r}") from None


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return what openai's transport raises while a body is read.

    openai wraps those of sending alone, and comes with either of two transports.
    """
    found = [sys.modules[name].HTTPError for name in ("httpx", "httpx2") if name in sys.modules]
    return (*found, OSError)


class ChatModel:
    """Asks one model; an async context manager that belongs to one event loop.

    A reply that did not come to its end is treated like one that never began; what it cost is
    charged to the budget by estimate.

    Args:
        settings: model, address, limits and prices.
        budget: shared with other models; None: no limits.

    Raises:
        InputError: openai is not installed, or OpenAI itself is meant and there is no key.
    """

    def __init__(self, settings: ModelSettings, budget: Budget | None = None) -> None:
        self.settings = settings
        self.budget = Budget() if budget is None else budget
        self._openai = require("openai", "asking a model")
        self._key = os.environ.get(settings.api_key_env, "")
        if not self._key and settings.base_url is None and not os.environ.get("OPENAI_BASE_URL"):
            raise InputError(
                f"the environment variable {settings.api_key_env} holds no key for {settings.name}"
            )
        self._client = self._openai.AsyncOpenAI(
            api_key=self._key or NO_KEY,
            base_url=settings.base_url,
            max_retries=0,
            timeout=self._openai.Timeout(
                settings.timeout_s, connect=min(CONNECT_TIMEOUT_S, settings.timeout_s)
            ),
        )
        self._transport_errors = _transport_errors()
        self._pace = Pace(settings.requests_per_minute, settings.tokens_per_minute)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._replies = 0
        self._reply_tokens = 0
        self._largest = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._client.close()

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        json_schema: Mapping[str, Any] | None = None,
        seed: int | None = None,
        keep: Callable[[Reply], Awaitable[None]] | None = None,
    ) -> Reply:
        """Return the model's reply to a conversation.

        Args:
            messages: the conversation, at least one.
            temperature: in place of the settings' one.
            json_schema: the reply shall be JSON of this schema (``response_format``); servers
                differ in how well they keep it.
            seed: asks servers that can for a repeatable reply.
            keep: awaited with the reply before its place among the ``concurrency`` requests is
                given to another, so that a kill never costs more replies than these.

        Raises:
            ModelUnavailable: no usable reply in ``1 + max_retries`` attempts.
            ModelRefused: the server refuses this request.
            ModelNoAccess: the server refuses every request.
            BudgetSpent: the budget leaves no further request, or asking was stopped.
        """
        body = self._body(messages, temperature, json_schema, seed)
        attempts = 0
        spent = Spent()
        while True:
            attempts += 1
            try:
                async with self._slots:
                    reply = await self._paid_attempt(body, messages, spent)
                    if keep is not None:
                        await keep(reply)
                    return reply
            except AttemptFailed as failure:
                if not failure.is_transient or attempts > self.settings.max_retries:
                    raise failure.kind(self._sentence(failure, attempts)) from failure.__cause__
                wait_s = backoff_s(failure, attempts, self.settings.initial_backoff_s)
                if failure.retry_after_s:
                    self._pace.hold(failure.retry_after_s)
            await self.budget.pause(wait_s)

    def _body(
        self,
        messages: Sequence[Message],
        temperature: float | None,
        json_schema: Mapping[str, Any] | None,
        seed: int | None,
    ) -> dict[str, Any]:
        settings = self.settings
        schema = {"name": "reply", "schema": json_schema, "strict": True}
        body = {
            "model": settings.model,
            "messages": [{"role": one.role, "content": one.content} for one in messages],
            "stream": True,
            "temperature": settings.temperature if temperature is None else temperature,
            "top_p": settings.top_p,
            settings.limit_field: settings.max_tokens,
            "seed": seed,
            "stream_options": {"include_usage": True} if settings.stream_usage else None,
            "response_format": (
                None if json_schema is None else {"type": "json_schema", "json_schema": schema}
            ),
            "extra_body": dict(settings.extra_body) or None,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def _paid_attempt(
        self, body: dict[str, Any], messages: Sequence[Message], spent: Spent
    ) -> Reply:
        """Make one attempt within pace and budget; what it takes is added to ``spent``."""
        expected = self._expected_tokens(messages)
        most = self._account(
            most_tokens(messages),
            self.settings.max_tokens or max(FIRST_GUESS_TOKENS, self._largest),
        )
        await self.budget.pause(self._pace.book(expected))
        await self.budget.reserve(most)
        parts = ReplyParts()
        began = time.monotonic()
        try:
            request_id = await self._attempt(body, parts)
            prompt, completion = _tokens(parts, messages)
            self._replies += 1
            self._reply_tokens += completion
            self._largest = max(self._largest, completion)
        finally:
            # Also where the attempt failed or was cancelled: what was generated is paid for.
            started = parts.reply_id or parts.text or parts.prompt_tokens is not None
            taken = self._account(*_tokens(parts, messages)) if started else Spent(requests=1)
            self.budget.settle(most, taken)
            spent.add(taken)
            self._pace.correct(expected, taken.tokens)
        counted = parts.prompt_tokens is not None and parts.completion_tokens is not None
        return Reply(
            text=parts.text,
            model=parts.model or self.settings.model,
            finish_reason=parts.finish_reason,
            prompt_tokens=parts.prompt_tokens,
            completion_tokens=parts.completion_tokens,
            cost=self.settings.cost(prompt, completion) if counted else None,
            request_id=request_id or parts.reply_id or None,
            reasoning=parts.reasoning,
            attempts=spent.requests,
            spent_cost=spent.cost,
            spent_tokens=spent.tokens,
            seconds=round(time.monotonic() - began, 3),
        )

    async def _attempt(self, body: dict[str, Any], parts: ReplyParts) -> str | None:
        """Send one request and take in the reply; return the server's name for it."""
        openai = self._openai
        create = self._client.chat.completions.with_streaming_response.create
        request_id = None
        try:
            async with (
                asyncio.timeout(self.settings.total_timeout_s),
                create(**body) as response,
            ):
                whole = "json" in response.headers.get("content-type", "")
                read = read_whole if whole else read_events
                await read(response.iter_bytes(), parts)
                request_id = response.headers.get("x-request-id")
        except openai.APIStatusError as error:
            headers, answered = error.response.headers, self._replies > 0
            raise _from_status(error.status_code, headers, error.body, answered) from None
        except openai.APITimeoutError:
            raise self._silence() from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise AttemptFailed(f"no connection: {type(cause).__name__}: {cause}") from None
        except self._transport_errors as error:
            # After its end all of a reply is there; only its token counts may be missing.
            if not parts.finish_reason:
                raise self._cut(error, parts) from None
        if not parts.finish_reason:
            raise AttemptFailed(
                f"the reply ended before its end, after {len(parts.text):,} characters"
            )
        return str(request_id) if request_id else None

    def _silence(self) -> AttemptFailed:
        return AttemptFailed(f"no sign of life for {self.settings.timeout_s:g} s")

    def _cut(self, error: Exception, parts: ReplyParts) -> AttemptFailed:
        """Return what it means that a body broke off."""
        if isinstance(error, TimeoutError):  # of the attempt as a whole
            return AttemptFailed(f"the reply took over {self.settings.total_timeout_s:g} s")
        if "Timeout" in type(error).__name__:  # of a transport, each of which has its own class
            return self._silence()
        return AttemptFailed(
            f"the connection broke after {len(parts.text):,} characters ({type(error).__name__})"
        )

    def _account(self, prompt: int, completion: int) -> Spent:
        """Return what one request of so many tokens takes."""
        return Spent(self.settings.cost(prompt, completion) or 0.0, 1, prompt + completion)

    def _expected_tokens(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the next request will take, going by those before."""
        prompt = sum(likely_tokens(message.content) for message in messages)
        if self._replies:
            return prompt + self._reply_tokens // self._replies
        return prompt + min(self.settings.max_tokens or FIRST_GUESS_TOKENS, FIRST_GUESS_TOKENS)

    def _sentence(self, failure: AttemptFailed, attempts: int) -> str:
        url = self.settings.base_url
        where = "" if url is None else f" at {public_url(url)}"
        tries = f" (attempt {attempts} of {1 + self.settings.max_retries})"
        reason = failure.reason
        # Some servers repeat the key in their refusal.
        if len(self._key) >= SHORTEST_SECRET:
            reason = reason.replace(self._key, "…")
        return f"{self.settings.name}{where}: {reason}{tries if attempts > 1 else ''}"


def _tokens(parts: ReplyParts, messages: Sequence[Message]) -> tuple[int, int]:
    """Return the tokens of prompt and reply, estimated where the server did not count."""
    prompt = parts.prompt_tokens
    if prompt is None:
        prompt = sum(likely_tokens(message.content) for message in messages)
    completion = parts.completion_tokens
    if completion is None:
        completion = likely_tokens(parts.text + (parts.reasoning or ""))
    return prompt, completion


def ask_key(
    settings: ModelSettings,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    json_schema: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> str:
    """Return the key of a question: equal keys were asked the same of the same model.

    Address, limits and prices do not count; all else is as :meth:`ChatModel.ask` takes it.

    Args:
        sample: tells apart samples of the same question; any JSON value.
    """
    asked = settings.sampling() | ({} if temperature is None else {"temperature": temperature})
    turns = [[message.role, message.content] for message in messages]
    return digest([settings.name, asked, turns, json_schema, seed, sample])


async def ask_once(
    model: ChatModel,
    journal: Journal,
    messages: Sequence[Message],
    *,
    sample: object = 0,
    **how: Any,
) -> Reply:
    """Return the journal's reply to a question, or ask it and write the reply down.

    The record is that of :meth:`Reply.to_row`.  A reply that was received is written down even
    if this is cancelled meanwhile.

    Args:
        sample: tells apart samples of the same question; any JSON value.
        how: temperature, json_schema and seed as for :meth:`ChatModel.ask`.

    Raises:
        ModelError: see :meth:`ChatModel.ask`.
        ConsensusPRError: the journal cannot be written.
    """
    key = ask_key(model.settings, messages, sample=sample, **how)
    record = journal.get(key)
    if record is not None:
        return Reply.from_row(record)

    async def keep(reply: Reply) -> None:
        await write_down(journal, key, reply.to_row())

    return await model.ask(messages, keep=keep, **how)
