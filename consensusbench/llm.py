"""Language models behind OpenAI-compatible servers, within a budget.

:class:`ChatModel` asks one model through the ``openai`` client, which repeats what can be repeated.
A :class:`Budget` limits what several models spend together.  :func:`ask_key` is the key under which
a reply is kept, so that it is paid for once.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from consensusbench import require
from consensusbench.store import digest
from consensuspr.console import one_line
from consensuspr.data import Row
from consensuspr.errors import (
    BudgetSpent,
    DataError,
    InputError,
    ModelError,
    ModelNoAccess,
    ModelRefused,
    ModelUnavailable,
)
from consensuspr.settings import check_fields

# The size of a reply that has no limit, before any reply is known.
FIRST_GUESS_TOKENS = 2048
# English and mathematics have 3 to 4.5 bytes a token in the tokenizers of current models.
BYTES_PER_TOKEN = 3
# What chat templates put around a message at most.
TEMPLATE_TOKENS = 64
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")

Temperature: TypeAlias = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
_Price: TypeAlias = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model behind one OpenAI-compatible address.

    Attributes:
        model: name of the model on the server.
        base_url: URL of an OpenAI-compatible server, with ``/v1``.  Default: OpenAI's.
        api_key_env: environment variable that holds the key.
        temperature: temperature of the replies.  Default: the server's.
        top_p: top-p of the replies.  Default: the server's.
        max_tokens: tokens of the longest reply, with reasoning.  Default: the server's limit.
        timeout_s: seconds for one attempt.
        max_retries: attempts after the first one; 8 take about a minute.
        concurrency: requests in flight at a time.
        price_in: US dollars for a million prompt tokens.
        price_out: US dollars for a million completion tokens.
        label: name in files and tables.  Default: ``model``.
        extra_body: further keys of a request, such as ``top_k`` or ``reasoning_effort``.
    """

    model: str = ""
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: Temperature | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    timeout_s: Annotated[float, Field(ge=0.001, le=86_400, allow_inf_nan=False)] = 1800.0
    max_retries: Annotated[int, Field(ge=0, le=100)] = 8
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 16
    price_in: _Price | None = None
    price_out: _Price | None = None
    label: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base_url is not None and urlsplit(self.base_url).scheme not in ("http", "https"):
            raise InputError(
                f"base_url of {self.name} must begin with http:// or https://, "
                f"got {self.base_url!r}"
            )
        check_fields(self, f" of {self.name}")

    @property
    def name(self) -> str:
        """Name in files and messages."""
        return self.label or self.model or "the model"

    @property
    def is_priced(self) -> bool:
        """Whether the cost of a reply is known."""
        return self.price_in is not None and self.price_out is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return what so many tokens cost in US dollars, None without prices."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6

    def sampling(self) -> Row:
        """Return what decides how replies are distributed; equal rows may share a journal."""
        return {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "extra_body": dict(self.extra_body),
        }

    def provenance(self) -> Row:
        """Return what a dataset records about the model: no key and no address."""
        return {"name": self.name, **self.sampling()}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    Attributes:
        text: the answer itself.
        model: the model's name as the server gives it.
        finish_reason: ``stop``, ``length``, ``content_filter``, …; ``refusal`` if the server marks
            the text as one.
        prompt_tokens: as the server counted; None if it does not count.
        completion_tokens: the same, reasoning included.
        cost: US dollars, by estimated tokens where the server did not count; None without prices.
        reasoning: the model's thinking, where the server sends it apart from the text.
        attempts: requests that it took.
    """

    text: str
    model: str
    finish_reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    reasoning: str | None = None
    attempts: int = 1

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the reply of a row that ``asdict`` made; other keys are ignored."""
        return cls(**{each.name: row[each.name] for each in fields(cls) if each.name in row})

    @property
    def is_refusal(self) -> bool:
        """Whether the model or a filter declined to answer."""
        return self.finish_reason in ("refusal", "content_filter")


def most_tokens(messages: Sequence[Message]) -> int:
    """Return a bound: no byte-level tokenizer makes more than one token of a byte."""
    return sum(_num_bytes(message.content) + TEMPLATE_TOKENS for message in messages)


def likely_tokens(text: str) -> int:
    """Return an estimate on the high side, for servers that do not count."""
    return -(-_num_bytes(text) // BYTES_PER_TOKEN)


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Budget:
    """The limits on spending, and the switch that ends all asking; for one event loop.

    A request reserves the most that it can cost before it is sent, so that requests in flight
    cannot run past the limit together.  An attempt without a usable reply is charged nothing,
    although a provider may charge for it.

    Args:
        max_cost: US dollars; None: no limit.
        max_requests: replies asked for.
    """

    def __init__(self, max_cost: float | None = None, max_requests: int | None = None) -> None:
        for name, limit in {"max_cost": max_cost, "max_requests": max_requests}.items():
            if limit is not None and not 0 <= limit < math.inf:
                raise InputError(f"{name} must be 0 or more, got {limit!r}")
        self._max_cost = max_cost
        self._max_requests = max_requests
        self.cost = 0.0
        self.requests = 0
        self.stopped: str | None = None
        self._reserved = 0.0
        self._in_flight = 0
        self._changed = asyncio.Condition()

    def charge_earlier(self, reply: Reply) -> None:
        """Count a reply that an earlier run of the same work paid for."""
        self.requests += 1
        self.cost += reply.cost or 0.0

    async def reserve(self, cost: float) -> None:
        """Set aside the most that one request can cost; wait while others may give some back.

        Raises:
            BudgetSpent: it does not fit although nothing is in flight, or asking was stopped.
        """
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.stopped or not self._in_flight or self._over(cost) is None
            )
            if reason := self.stopped or self._over(cost):
                raise BudgetSpent(reason)
            self._reserved += cost
            self._in_flight += 1
            self.requests += 1

    async def settle(self, cost: float, reply: Reply | None) -> None:
        """Replace a reservation by the cost of the reply."""
        async with self._changed:
            self._reserved -= cost
            self._in_flight -= 1
            if reply is not None:
                self.cost += reply.cost or 0.0
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        """Let no further request begin; those in flight go on."""
        self.stopped = self.stopped or reason

    def _over(self, cost: float) -> str | None:
        """Return which limit the request would exceed."""
        spent = self.cost + self._reserved + cost
        # A limit that is met exactly must not be missed by rounding.
        if self._max_cost is not None and spent > self._max_cost * (1 + 1e-9):
            return (
                f"the next request could exceed the limit of ${self._max_cost:g}: "
                f"${self.cost:.4f} is spent and the request may cost ${cost:.4f}"
            )
        if self._max_requests is not None and self.requests >= self._max_requests:
            return f"the limit of {self._max_requests:,} requests is reached"
        return None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Annotated[str, Field(min_length=1)]


class _Completion(BaseModel):
    """The parts of a reply that are read; a reply without an end is none."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None
    model: str | None = None


class ChatModel:
    """Asks one model; an async context manager that belongs to one event loop.

    Args:
        settings: model, address, limits and prices.
        budget: shared with other models; None: no limits.

    Raises:
        InputError: openai is not installed, or OpenAI itself is meant and there is no key.
    """

    def __init__(self, settings: ModelSettings, budget: Budget | None = None) -> None:
        if not settings.model:
            raise InputError("a model has an empty name")
        self.settings = settings
        self._budget = budget or Budget()
        self._openai = require("openai", "asking a model")
        self._key = os.environ.get(settings.api_key_env, "")
        has_own_server = settings.base_url is not None or os.environ.get("OPENAI_BASE_URL")
        if not (self._key or has_own_server):
            raise InputError(
                f"the environment variable {settings.api_key_env} holds no key for {settings.name}"
            )
        self._client = self._openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=settings.base_url,
            max_retries=settings.max_retries,
            timeout=self._openai.Timeout(settings.timeout_s, connect=min(15.0, settings.timeout_s)),
            http_client=_http_client(self._openai, settings.timeout_s),
        )
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._largest = FIRST_GUESS_TOKENS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Return the model's reply to a conversation.

        Args:
            messages: the conversation, at least one.
            temperature: in place of the settings' one.
            seed: asks servers that can for a repeatable reply.

        Raises:
            ModelUnavailable: no usable reply in ``1 + max_retries`` attempts.
            ModelRefused: the server refuses this request.
            ModelNoAccess: the server refuses every request.
            BudgetSpent: the budget leaves no further request, or asking was stopped.
        """
        settings = self.settings
        limit_field = "max_completion_tokens" if settings.base_url is None else "max_tokens"
        body = {
            "model": settings.model,
            "messages": [asdict(message) for message in messages],
            "temperature": settings.temperature if temperature is None else temperature,
            "top_p": settings.top_p,
            limit_field: settings.max_tokens,
            "seed": seed,
            "extra_body": dict(settings.extra_body) or None,
        }
        given = {name: value for name, value in body.items() if value is not None}
        longest = settings.max_tokens or self._largest
        async with self._slots:
            most = settings.cost(most_tokens(messages), longest) or 0.0
            await self._budget.reserve(most)
            reply = None
            try:
                reply = await self._reply(given, messages)
            finally:
                await self._budget.settle(most, reply)
        self._largest = max(self._largest, reply.completion_tokens or 0)
        return reply

    async def _reply(self, body: dict[str, Any], messages: Sequence[Message]) -> Reply:
        try:
            raw = await self._client.chat.completions.with_raw_response.create(**body)
        except self._openai.APIError as error:
            raise self._error(error) from None
        try:
            content = _Completion.model_validate_json(raw.text)
        except ValidationError as error:
            [fault, *_] = error.errors()
            field_name = ".".join(map(str, fault["loc"])) or "JSON"
            reason = f"the reply is no chat completion ({field_name}): {one_line(raw.text, 60)!r}"
            raise ModelUnavailable(f"{self._where}: {reason}") from None
        choice, usage = content.choices[0], content.usage or _Usage()
        text = choice.message.content or choice.message.refusal or ""
        reasoning = choice.message.reasoning_content or choice.message.reasoning or None
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        likely = sum(likely_tokens(message.content) for message in messages)
        return Reply(
            text=text,
            model=content.model or self.settings.model,
            finish_reason="refusal" if choice.message.refusal else choice.finish_reason,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=self.settings.cost(
                likely if prompt is None else prompt,
                likely_tokens(text + (reasoning or "")) if completion is None else completion,
            ),
            reasoning=reasoning,
            attempts=1 + raw.retries_taken,
        )

    @property
    def _where(self) -> str:
        url = self.settings.base_url
        at = "" if url is None else f" at {urlsplit(url).netloc.rpartition('@')[2]}"
        return f"{self.settings.name}{at}"

    def _error(self, error: Any) -> ModelError:
        """Return an error of the client as ours, in one sentence without the key."""
        status = getattr(error, "status_code", None)
        code, body = getattr(error, "code", None), getattr(error, "body", None)
        if isinstance(error, self._openai.APITimeoutError):
            reason = f"no reply within {self.settings.timeout_s:g} s"
        elif status is None:
            reason = f"no connection: {error.__cause__ or error}"
        else:
            message = body.get("message") if isinstance(body, dict) else body
            reason = f"HTTP {status}" + (f": {one_line(str(message), 300)}" if message else "")
        if len(self._key) >= 8:  # some servers repeat the key in their refusal
            reason = reason.replace(self._key, "…")
        sentence = f"{self._where}: {reason}"
        if status in (401, 402, 404) or code in _NO_CREDIT:
            return ModelNoAccess(sentence)
        if status is None or status in (408, 409, 429) or status >= 500:
            return ModelUnavailable(f"{sentence} ({1 + self.settings.max_retries} attempts)")
        return ModelRefused(sentence)


def _http_client(openai: Any, timeout_s: float) -> Any:
    """Return a client that ends each attempt in time; httpx limits only each read of a reply."""
    # httpx or its successor, as this openai has it; its client repeats no other TimeoutError.
    httpx = sys.modules[openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0]]

    class Client(openai.DefaultAsyncHttpxClient):  # type: ignore[misc]
        async def send(self, *arguments: Any, **options: Any) -> Any:
            try:
                async with asyncio.timeout(timeout_s):
                    return await super().send(*arguments, **options)
            except TimeoutError as error:
                raise httpx.ReadTimeout("the reply took too long") from error

    return Client()


def ask_key(
    settings: ModelSettings,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> str:
    """Return the key of a question: equal keys were asked the same of the same model.

    Address, limits and prices do not count.

    Args:
        sample: distinguishes samples of the same question; any JSON value.
    """
    asked = settings.sampling() | ({} if temperature is None else {"temperature": temperature})
    turns = [[message.role, message.content] for message in messages]
    # The third one has no use any more; journals that there are have it in their keys.
    return digest([settings.name, asked, turns, None, seed, sample])


class _ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: list[dict[str, Any]]
    defaults: dict[str, Any] = {}


def read_models(
    names: Sequence[str], file: Path | None, defaults: Mapping[str, Any]
) -> tuple[ModelSettings, ...]:
    """Return the models that were named, then those of a TOML file.

    The file has a table ``[[models]]`` for each model and may have ``[defaults]`` for all; the keys
    are the attributes of :class:`ModelSettings`.

    Args:
        names: each ``NAME`` or ``NAME@BASE_URL``.
        file: None for named models only.
        defaults: values for models that do not give their own; None gives nothing.

    Raises:
        InputError: there is no model, two have one name, or a name or value is wrong.
        DataError: the file cannot be read, or holds something else.
    """
    models = []
    for name in names:
        match = re.fullmatch(r"(?P<model>.+?)@(?P<base_url>https?://.+)", name, re.DOTALL)
        entry = {"model": name} if match is None else match.groupdict()
        models.append(_settings({**defaults, **entry}, f"--model {name}"))
    if file is not None:
        try:
            content = _ModelsFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise DataError(str(file), None, f"cannot be read: {error.strerror}") from None
        except ValidationError:
            raise DataError(
                str(file), None, "must hold [[models]] tables, and [defaults] if any"
            ) from None
        except ValueError as error:
            raise DataError(str(file), None, f"is not TOML: {error}") from None
        shared = {**defaults, **content.defaults}
        models += [_settings({**shared, **entry}, str(file)) for entry in content.models]
    if not models:
        raise InputError("no model is named: give --model NAME[@BASE_URL] or --models FILE")
    for name, count in Counter(model.name for model in models).items():
        if count > 1:
            raise InputError(
                f"two models have the name {name!r}; give one a label in a models file"
            )
    return tuple(models)


def _settings(values: Mapping[str, Any], where: str) -> ModelSettings:
    known = [each.name for each in fields(ModelSettings)]
    for name in values:
        if name not in known:
            raise InputError(f"{where}: unknown key {name!r}; known are {', '.join(known)}")
    # A sampling setting that is "default" is not sent.
    given = {
        name: value
        for name, value in values.items()
        if value is not None
        and not (value == "default" and name in ("temperature", "top_p", "max_tokens"))
    }
    if not given.get("model"):
        raise InputError(f"{where}: a model has an empty name")
    try:
        return ModelSettings(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
