"""``ChatModel``: one question, one reply, however the server misbehaves.

Over ``openai``'s client with its own retries off: ours are bounded in number, jittered, keep the
limits a minute and the budget, and treat a reply that did not come to its end like one that
never began.  What an attempt cost that was cut half-way is charged to the budget by estimate.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from consensusbench.models.budget import Budget, Spent
from consensusbench.models.failures import (
    AttemptFailed,
    backoff_s,
    from_status,
    transport_errors,
)
from consensusbench.models.pace import Pace
from consensusbench.models.settings import Message, ModelSettings, Reply, public_url
from consensusbench.models.stream import Assembly, read_events, read_whole
from consensusbench.models.tokens import likely_tokens, most_tokens
from consensusbench.require import require
from consensuspr.errors import InputError

CONNECT_TIMEOUT_S = 15.0
# What a reply is taken for where it has no limit and none has been seen.
FIRST_GUESS_TOKENS = 2048
# A placeholder such as "x" is no secret, and cutting it out would spoil the sentence.
SHORTEST_SECRET = 8
# Servers of one's own ask for no key, but openai's client insists on one.
NO_KEY = "none"


class ChatModel:
    """Asks one model; an async context manager that belongs to one event loop.

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
        self._transport_errors = transport_errors()
        self._pace = Pace(settings.requests_per_minute, settings.tokens_per_minute)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._replies = 0
        self._reply_tokens = 0
        self._largest = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
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
        most = self._most(messages)
        attempts = 0
        spent = Spent()
        while True:
            attempts += 1
            try:
                async with self._slots:
                    reply = await self._paid_attempt(body, messages, most, spent)
                    if keep is not None:
                        await keep(reply)
                    return reply
            except AttemptFailed as failure:
                if not failure.is_transient or attempts > self.settings.max_retries:
                    raise failure.kind(self._sentence(failure, attempts)) from failure.__cause__
                wait_s = backoff_s(
                    failure, attempts, self.settings.initial_backoff_s, random.uniform
                )
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

    def _most(self, messages: Sequence[Message]) -> Spent:
        """Return the most that one attempt can take."""
        prompt = most_tokens(messages)
        completion = self.settings.max_tokens or max(FIRST_GUESS_TOKENS, self._largest)
        cost = self.settings.cost(prompt, completion) or 0.0
        return Spent(cost, 1, prompt + completion)

    async def _paid_attempt(
        self, body: dict[str, Any], messages: Sequence[Message], most: Spent, spent: Spent
    ) -> Reply:
        """Make one attempt within pace and budget; what it takes is added to ``spent``."""
        guess = self._expected(messages)
        await self.budget.pause(self._pace.book(guess))
        await self.budget.reserve(most)
        assembly = Assembly()
        began = time.monotonic()
        try:
            request_id = await self._attempt(body, assembly)
            prompt, completion = _tokens(assembly, messages)
            self._learn(completion)
        finally:
            # Also where the attempt failed or was cancelled: what was generated is paid for.
            taken = self._taken(assembly, messages)
            self.budget.settle(most, taken)
            spent.add(taken)
            self._pace.correct(guess, taken.tokens)
        counted = assembly.prompt_tokens is not None and assembly.completion_tokens is not None
        return Reply(
            text=assembly.text,
            model=assembly.model or self.settings.model,
            finish_reason=assembly.finish_reason or "",
            prompt_tokens=assembly.prompt_tokens,
            completion_tokens=assembly.completion_tokens,
            cost=self.settings.cost(prompt, completion) if counted else None,
            request_id=request_id or assembly.reply_id,
            reasoning=assembly.reasoning,
            attempts=spent.requests,
            spent_cost=spent.cost,
            spent_tokens=spent.tokens,
            seconds=round(time.monotonic() - began, 3),
        )

    async def _attempt(self, body: dict[str, Any], assembly: Assembly) -> str | None:
        """Send one request and take in the reply; return the server's name for it."""
        openai = self._openai
        create = self._client.chat.completions.with_streaming_response.create
        try:
            async with (
                asyncio.timeout(self.settings.total_timeout_s),
                create(**body) as response,
            ):
                whole = "json" in response.headers.get("content-type", "")
                read = read_whole if whole else read_events
                await read(response.iter_bytes(), assembly)
                request_id = response.headers.get("x-request-id")
        except openai.APIStatusError as error:
            headers = error.response.headers
            code, answered = error.status_code, self._replies > 0
            raise from_status(code, headers, error.body, answered) from None
        except openai.APITimeoutError:
            raise self._silence() from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise AttemptFailed(f"no connection: {type(cause).__name__}: {cause}") from None
        except self._transport_errors as error:
            # After its end all of a reply is there; only its token counts may be missing.
            if assembly.finish_reason is None:
                raise self._cut(error, assembly) from None
            request_id = None
        if assembly.finish_reason is None:
            raise AttemptFailed(
                f"the reply ended before its end, after {len(assembly.text):,} characters"
            )
        return str(request_id) if request_id else None

    def _silence(self) -> AttemptFailed:
        return AttemptFailed(f"no sign of life for {self.settings.timeout_s:g} s")

    def _cut(self, error: Exception, assembly: Assembly) -> AttemptFailed:
        """Return what it means that a body broke off."""
        if isinstance(error, TimeoutError):  # of the attempt as a whole
            return AttemptFailed(f"the reply took over {self.settings.total_timeout_s:g} s")
        if "Timeout" in type(error).__name__:  # of a transport, each of which has its own class
            return self._silence()
        return AttemptFailed(
            f"the connection broke after {len(assembly.text):,} characters ({type(error).__name__})"
        )

    def _taken(self, assembly: Assembly, messages: Sequence[Message]) -> Spent:
        if not assembly.reply_id and not assembly.text and assembly.prompt_tokens is None:
            return Spent(requests=1)  # no reply began
        prompt, completion = _tokens(assembly, messages)
        cost = self.settings.cost(prompt, completion) or 0.0
        return Spent(cost, 1, prompt + completion)

    def _expected(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the next request will take, going by those before."""
        prompt = sum(likely_tokens(message.content) for message in messages)
        if self._replies:
            return prompt + self._reply_tokens // self._replies
        return prompt + min(self.settings.max_tokens or FIRST_GUESS_TOKENS, FIRST_GUESS_TOKENS)

    def _learn(self, completion_tokens: int) -> None:
        self._replies += 1
        self._reply_tokens += completion_tokens
        self._largest = max(self._largest, completion_tokens)

    def _sentence(self, failure: AttemptFailed, attempts: int) -> str:
        url = self.settings.base_url
        where = "" if url is None else f" at {public_url(url)}"
        tries = f" (attempt {attempts} of {1 + self.settings.max_retries})"
        reason = failure.reason
        # Some servers repeat the key in their refusal.
        if len(self._key) >= SHORTEST_SECRET:
            reason = reason.replace(self._key, "…")
        return f"{self.settings.name}{where}: {reason}{tries if attempts > 1 else ''}"


def _tokens(assembly: Assembly, messages: Sequence[Message]) -> tuple[int, int]:
    """Return the tokens of prompt and reply, estimated where the server did not count."""
    prompt = assembly.prompt_tokens
    if prompt is None:
        prompt = sum(likely_tokens(message.content) for message in messages)
    completion = assembly.completion_tokens
    if completion is None:
        completion = likely_tokens(assembly.text + (assembly.reasoning or ""))
    return prompt, completion
