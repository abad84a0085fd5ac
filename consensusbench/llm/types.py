"""Which models are asked with what settings, and what they replied: plain values.

A model is named on the command line as ``NAME[@BASE_URL]`` or in a TOML file::

    [defaults]                    # of all models of the file
    max_tokens = 16384

    [[models]]
    model = "gpt-5-mini"
    price_in = 0.25               # US dollars for a million tokens
    price_out = 2.0
    requests_per_minute = 500

    [[models]]
    model = "Qwen/Qwen3-32B"
    base_url = "http://127.0.0.1:8000/v1"
    api_key_env = "VLLM_KEY"
    temperature = "default"       # not sent
    extra_body = { top_k = 20 }

The keys are the attributes of :class:`ModelSettings`.  A model says more than the file's
defaults, and these more than those of the caller.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from consensuspr.data import Row
from consensuspr.errors import DataError, InputError
from consensuspr.settings import check_fields

# Beyond it openai's connection pool would queue what this package believes to be in flight.
MAX_CONCURRENCY = 1000

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]

Temperature: TypeAlias = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0.001, le=86_400, allow_inf_nan=False)]
_Price: TypeAlias = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model behind one OpenAI-compatible address.

    Attributes:
        model: its name as the server knows it.
        base_url: address up to and with ``/v1``; None is OpenAI's own, or ``OPENAI_BASE_URL``.
        api_key_env: environment variable that holds the key; the key itself is kept nowhere.
        temperature: sent where not None.
        top_p: sent where not None.
        max_tokens: limit of a reply, reasoning included; None leaves it to the server.
        timeout_s: seconds without a sign of life after which an attempt is given up.
        total_timeout_s: seconds that one attempt may take however lively it is.
        max_retries: attempts after the first one; 8 last about a minute.
        initial_backoff_s: upper end of the wait before the second attempt; doubled from then on.
        concurrency: requests in flight at once.
        requests_per_minute: requests are spaced out to stay below it.
        tokens_per_minute: prompts and replies together, by what replies have taken so far.
        price_in: US dollars for a million prompt tokens.
        price_out: US dollars for a million completion tokens.
        label: name in files and tables where it is not ``model``; tells two settings apart.
        max_tokens_field: name of the limit in a request; None: ``max_completion_tokens`` for
            OpenAI itself, which refuses the other for its reasoning models, else ``max_tokens``.
        stream_usage: ask for token counts in the stream; a few servers refuse the question.
        extra_body: further keys of a request, such as ``top_k`` or ``reasoning_effort``.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: Temperature | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    timeout_s: _Seconds = 300.0
    total_timeout_s: _Seconds = 3600.0
    max_retries: Annotated[int, Field(ge=0, le=100)] = 8
    initial_backoff_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0.5
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 16
    requests_per_minute: Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)] | None = (
        None
    )
    tokens_per_minute: Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)] | None = None
    price_in: _Price | None = None
    price_out: _Price | None = None
    label: str | None = None
    max_tokens_field: MaxTokensField | None = None
    stream_usage: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model:
            raise InputError("a model has an empty name")
        if self.base_url is not None and urlsplit(self.base_url).scheme not in ("http", "https"):
            raise InputError(
                f"base_url of {self.name} must begin with http:// or https://, "
                f"got {self.base_url!r}"
            )
        check_fields(self, f" of {self.name}")

    @property
    def name(self) -> str:
        """What files and messages call it."""
        return self.label or self.model

    @property
    def limit_field(self) -> MaxTokensField:
        """The name under which ``max_tokens`` is sent."""
        if self.max_tokens_field is not None:
            return self.max_tokens_field
        return "max_completion_tokens" if self.base_url is None else "max_tokens"

    @property
    def is_priced(self) -> bool:
        """Whether a reply's cost can be told."""
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
        """Return what a dataset records about the model: no key, and no address.

        Where a server stood says nothing about its replies, and is nobody's business.
        """
        return {"name": self.name, **self.sampling()}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said.

    Attributes:
        text: the answer itself.
        model: who the server says it was.
        finish_reason: ``stop``, ``length``, ``content_filter``, …
        prompt_tokens: as the server counted; None where it does not say.
        completion_tokens: the same, reasoning included.
        cost: US dollars; None without prices or counts.
        request_id: the server's name for it.
        reasoning: what it thought first, where the server sends that apart from the text.
        attempts: requests that it took.
        spent_cost: US dollars that the budget was charged for all of them, by estimate where the
            server did not count; 0 without prices.
        spent_tokens: the same for tokens.
        seconds: how long the last of them took.
    """

    text: str
    model: str
    finish_reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    request_id: str | None = None
    reasoning: str | None = None
    attempts: int = 1
    spent_cost: float = 0.0
    spent_tokens: int = 0
    seconds: float = 0.0

    def to_row(self) -> Row:
        """Return it as a row of JSON values."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the reply that :meth:`to_row` wrote; keys of others are passed over."""
        return cls(**{one.name: row[one.name] for one in fields(cls) if one.name in row})


def public_url(url: str) -> str:
    """Return an address without user name, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


NOT_SENT = "default"
_MAY_BE_NOT_SENT = ("temperature", "top_p", "max_tokens")

_NAME_AND_URL = re.compile(r"(?P<name>.+?)(?:@(?P<url>https?://.+))?", re.DOTALL)
# After the last "@": a port, a path, a dotted or a numeric host.  A version (model@v2) is none,
# nor is what follows a slash (workers/@cf/model).
_ADDRESS = re.compile(
    r".*[^/]@(?P<address>[^@]*(?::[0-9]|/)[^@]*|localhost|(?:[\w-]+\.)+[A-Za-z]{2,}|[0-9]+(?:\.[0-9]+){3})",
    re.DOTALL,
)
_KEYS = tuple(one.name for one in fields(ModelSettings))


def read_models(
    names: Sequence[str], file: Path | None, defaults: Mapping[str, Any]
) -> tuple[ModelSettings, ...]:
    """Return the models that were named, then those of the file.

    Args:
        names: each ``NAME`` or ``NAME@BASE_URL``.
        file: TOML as above, None where there is none.
        defaults: values of attributes for models that do not say; None says nothing either.

    Raises:
        InputError: there is no model, two have one name, an address has no scheme, or a name or
            value is wrong.
        DataError: the file cannot be read, or holds something else.
    """
    models = [_settings(_named(name), defaults, f"--model {name}") for name in names]
    if file is not None:
        own, entries = _entries(file)
        models += [_settings(entry, {**defaults, **own}, str(file)) for entry in entries]
    if not models:
        raise InputError("no model is named: give --model NAME[@BASE_URL] or --models FILE")
    seen: set[str] = set()
    for model in models:
        if model.name in seen:
            raise InputError(
                f"two models are called {model.name!r}: give one a label in a models file"
            )
        seen.add(model.name)
    return tuple(models)


def _named(text: str) -> Row:
    match = _NAME_AND_URL.fullmatch(text)
    if match is None:
        raise InputError("a model has an empty name")
    address = _ADDRESS.fullmatch(text)
    if match["url"] is None and address is not None:
        raise InputError(
            f"--model {text}: the address {address['address']} must begin with http:// or https://"
        )
    return {"model": match["name"], **({"base_url": match["url"]} if match["url"] else {})}


def _entries(file: Path) -> tuple[Row, list[Row]]:
    """Return a file's defaults and its models."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(str(file), None, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(str(file), None, f"is not TOML: {error}") from None
    own, entries = content.pop("defaults", {}), content.pop("models", None)
    if content:
        raise DataError(str(file), None, f"has an unknown table or key {next(iter(content))!r}")
    good = isinstance(entries, list) and all(isinstance(one, dict) for one in entries)
    if not isinstance(entries, list) or not good or not isinstance(own, dict):
        raise DataError(str(file), None, "must hold [[models]] tables, and [defaults] if any")
    return own, entries


def _settings(entry: Row, defaults: Mapping[str, Any], where: str) -> ModelSettings:
    given = {name: value for name, value in defaults.items() if value is not None} | entry
    if not isinstance(given.get("model"), str):
        raise InputError(f"{where}: a model has no name (key model)")
    for name in given:
        if name == "api_key":
            raise InputError(f"{where}: keys stand in the environment; name it with api_key_env")
        if name not in _KEYS:
            raise InputError(f"{where}: unknown key {name!r}; known are {', '.join(_KEYS)}")
    values: dict[str, Any] = {
        name: None if value == NOT_SENT and name in _MAY_BE_NOT_SENT else value
        for name, value in given.items()
    }
    try:
        return ModelSettings(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
