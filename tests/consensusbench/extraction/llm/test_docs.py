"""The page about this extractor says what the code does."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from consensusbench.extraction.llm import LlmSettings, _Fault, first_messages, quote
from consensusbench.extraction.types import CorrectRollout
from consensusbench.llm.limits import likely_tokens
from consensuspr.data import Problem


@pytest.fixture
def page(repository: Path) -> str:
    text = (repository / "docs/build-datasets.md").read_text(encoding="utf-8")
    return text.partition("\n## Nodes by a model\n")[2].partition("\n## ")[0]


def test_every_setting_stands_there_with_its_default(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", page, flags=re.MULTILINE)
    assert rows == [(name, str(value)) for name, value in asdict(LlmSettings()).items()]


def test_every_reason_stands_there(page: str) -> None:
    reasons = {"unsupported", "duplicate"}
    for fault in _Fault:
        reasons |= {fault.of_node or fault.of_wording, fault.of_wording}
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []


def test_the_table_of_costs_is_what_prompts_take(page: str) -> None:
    rows = re.findall(r"^\| (\d+) \| ([\d,]+)[^|]* \| ([\d,]+) \|", page, flags=re.MULTILINE)
    assert len(rows) == 5
    settings = LlmSettings()
    problem = Problem("p", problem="q" * 300)
    for shown, chars, tokens in rows:
        length = int(chars.replace(",", ""))
        rollouts = [CorrectRollout(str(i), str(i), "s" * length) for i in range(int(shown))]
        quotation = quote(problem, rollouts, settings.max_prompt_chars)
        messages = first_messages(quotation, settings.max_nodes)
        counted = sum(likely_tokens(message.content) for message in messages)
        assert int(tokens.replace(",", "")) == pytest.approx(counted, rel=0.03)
