"""The extractor that the options name, with what it needs around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from consensusbench.cli.construction_options import ExtractorChoice, StructuredChoice
from consensusbench.construction import AsyncExtraction
from consensusbench.extraction.types import AsyncExtractor, Extractor
from consensuspr.data import Row
from consensuspr.errors import InputError

if TYPE_CHECKING:  # --help waits for no client
    from consensusbench.models import Journal

# Beside the output, and kept: it was paid for, and another run may need it.
JOURNAL_SUFFIX = ".journal"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the command line says about the model; None: nothing."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: str = "0"
    structured: StructuredChoice = StructuredChoice.AUTO
    max_tokens: int | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    max_cost: float | None = None
    max_requests: int | None = None


@dataclass(frozen=True, slots=True)
class RulesOptions:
    """What the command line says about the rules; see ``RulesSettings``."""

    min_models: int = 2
    phrases: bool = True
    values: bool = True


def open_extractor(
    choice: ExtractorChoice,
    options: ModelOptions,
    rules: RulesOptions,
    min_support: int,
    output: Path,
    stack: ExitStack,
) -> Extractor | AsyncExtraction:
    """Return stage 2 as the options ask for it.

    Args:
        choice: by rules or by a model.
        options: of the model.
        rules: of the rules.
        min_support: rollouts that must reach a node.
        output: beside which a model's replies are kept.
        stack: closes what was opened.

    Raises:
        InputError: an option is missing, out of its range, or not for this extractor.
    """
    if choice is ExtractorChoice.RULES:
        for name, value in asdict(ModelOptions()).items():
            if getattr(options, name) != value:
                raise InputError(f"--{name.replace('_', '-')} is for --extractor llm")
        from consensusbench.extraction.rules import RulesExtractor, RulesSettings

        return RulesExtractor(
            RulesSettings(
                min_support=min_support,
                min_models=rules.min_models,
                phrases=rules.phrases,
                values=rules.values,
            )
        )
    if rules != RulesOptions():
        raise InputError("--min-models, --no-phrases and --no-values are for --extractor rules")
    return _by_model(options, min_support, output, stack)


def _by_model(
    options: ModelOptions, min_support: int, output: Path, stack: ExitStack
) -> AsyncExtraction:
    from consensusbench.extraction.llm import LlmExtractor, LlmSettings
    from consensusbench.models import Budget, ChatModel, Journal, ModelSettings, Reply, spent_on

    if options.model is None:
        raise InputError("--extractor llm needs --model NAME")
    temperature = _temperature(options.temperature)
    model_settings = ModelSettings(
        model=options.model,
        base_url=options.base_url,
        api_key_env=options.api_key_env,
        temperature=temperature,
        max_tokens=options.max_tokens,
        concurrency=options.concurrency,
        requests_per_minute=options.requests_per_minute,
        tokens_per_minute=options.tokens_per_minute,
        price_in=options.price_in,
        price_out=options.price_out,
    )
    if options.max_cost is not None and not model_settings.is_priced:
        raise InputError("--max-cost needs --price-in and --price-out")
    budget = Budget(options.max_cost, options.max_requests)

    def charge(key: str, record: Row) -> None:
        budget.charge_earlier(spent_on(Reply.from_row(record)))

    model = ChatModel(model_settings, budget)
    journal = Journal(Path(f"{output}{JOURNAL_SUFFIX}"), "extraction-replies", {}, charge)
    stack.callback(_close, journal)
    extractor = LlmExtractor(
        model,
        LlmSettings(
            min_support=min_support, temperature=temperature, structured=options.structured.value
        ),
        journal,
    )

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncExtractor]:
        async with model:
            yield extractor

    return AsyncExtraction(opened, options.concurrency, extractor.provenance())


def _close(journal: Journal) -> None:
    journal.close()
    if not len(journal):
        journal.path.unlink(missing_ok=True)


def _temperature(text: str) -> float | None:
    if text == "server":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature must be a number or server, got {text!r}") from None
