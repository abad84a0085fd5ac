"""The sampler inside: bounded in what it holds, and nothing lost when something breaks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consensusbench.llm import Budget, ChatModel, Journal, ModelSettings
from consensusbench.sampling import SampleSettings
from consensusbench.sampling.sampler import AnswerChecker, RolloutSampler, SampleJournal
from consensuspr.data import Problem
from consensuspr.errors import ConsensusPRError, VerifierUnavailable
from consensuspr.scoring.answers import AnswerVerifier
from tests.consensusbench.conftest import journal_records
from tests.consensusbench.openai_server import OpenAIServer, Say
from tests.consensusbench.sampling.conftest import SampleBench


async def test_problems_are_read_only_as_others_are_finished(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    openai_server.respond = lambda asked: Say("x", first_byte_s=600)
    read = 0

    def problems() -> Iterator[Problem]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield Problem(f"p{number}", "1", problem=f"What is {number}?")

    settings = ModelSettings("m", base_url=openai_server.url, concurrency=4)
    budget = Budget()
    with SampleJournal(tmp_path / "j", [settings], SampleSettings()) as journal:
        async with ChatModel(settings, budget) as model:
            with AnswerChecker(journal) as checker:
                sampler = RolloutSampler([model], budget, journal, checker)
                work = asyncio.ensure_future(sampler.sample(problems()))
                while len(openai_server.asked) < 4:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                assert (read, len(openai_server.asked)) == (5, 4)
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work


@pytest.mark.parametrize("what", ["disk", "verifier"])
def test_what_breaks_ends_the_run_and_what_was_paid_is_kept(
    bench: SampleBench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    problems = bench.problems(10)
    owner, method, most, error = {
        "disk": (Journal, "append", 12, ConsensusPRError("No space left on device")),
        "verifier": (AnswerVerifier, "verify_batch", 6, VerifierUnavailable("cannot be started")),
    }[what]
    works, calls = getattr(owner, method), itertools.count(1)

    def breaks(*arguments: Any, **options: Any) -> Any:
        if next(calls) > most:
            raise error
        return works(*arguments, **options)

    monkeypatch.setattr(owner, method, breaks)
    assert bench.sample(problems, "--concurrency", 2, seed=0) == 1
    said = bench.errors()
    assert str(error) in said and "of 10 problems are finished" in said
    assert not bench.output.exists()
    assert len(bench.server.asked) < 30
    first = len(bench.server.asked)
    recorded = journal_records(bench.journal).values()
    kept = sum("reply" in record for record in recorded)
    # Only replies that found no room are lost.
    assert kept == first if what == "verifier" else 6 <= kept < first
    monkeypatch.undo()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    assert bench.sample(problems, seed=0) == 0
    assert len(bench.server.asked) == first + 50 - kept
