"""Limits on what a run may spend, alone and over several runs, and bounds told beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.consensusbench.openai_server import Refuse, Say, prompt_tokens
from tests.consensusbench.sampling.conftest import right

if TYPE_CHECKING:
    from tests.consensusbench.openai_server import OpenAIServer
    from tests.consensusbench.sampling.conftest import Sample

Rows = Callable[[], list[dict[str, Any]]]
Problems = Callable[..., Path]
ModelsFile = Callable[..., Path]


def test_the_limit_of_requests_holds_and_a_higher_one_goes_on(
    sample: Sample,
    write_problems: Problems,
    openai_server: OpenAIServer,
    rollouts: Rows,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = write_problems(10)
    assert sample(problems, max_requests=23) == 1
    assert "the limit of 23 requests is reached; " in capsys.readouterr().err
    assert len(openai_server.asked) == 23
    assert sample(problems, max_requests=23) == 1  # of all runs together
    assert len(openai_server.asked) == 23
    assert not (tmp_path / "rollouts.jsonl").exists()
    assert sample(problems, "--finish", max_requests=23) == 0
    assert (len(rollouts()), len(openai_server.asked)) == (23, 23)
    assert sample(problems, max_requests=50) == 0
    assert (len(rollouts()), len(openai_server.asked)) == (50, 50)


@pytest.mark.parametrize(("limit", "value"), [("max_cost", 0.0004), ("max_tokens_total", 1200)])
def test_limits_on_cost_and_tokens_are_never_exceeded(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    limit: str,
    value: float,
) -> None:
    models = models_file("a", more="price_in = 0\nprice_out = 2\nmax_tokens = 30")
    openai_server.respond = lambda asked: Say(right(asked), first_byte_s=0.01)
    assert sample(write_problems(30), models=models, **{limit: value}) == 1
    charged = sum(asked.charged or 0 for asked in openai_server.charged)
    prompts = sum(map(prompt_tokens, openai_server.charged))
    spent = charged * 2 / 1e6 if limit == "max_cost" else charged + prompts
    assert 0.5 * value < spent <= value


@pytest.mark.parametrize("usage", [True, False])
def test_a_limit_on_cost_holds_over_several_runs(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    usage: bool,
) -> None:
    models = models_file("a", more="price_in = 1000\nprice_out = 1000\nmax_tokens = 50")
    openai_server.respond = lambda asked: (
        Refuse(500) if asked.number % 3 == 0 else Say(right(asked), usage=usage)
    )
    problems = write_problems(30)
    assert sample(problems, "--max-cost", 2, models=models) == 1
    asked = len(openai_server.asked)
    assert sample(problems, "--max-cost", 2, models=models) == 1
    assert len(openai_server.asked) <= asked + 1


def test_a_limit_on_cost_needs_prices(
    sample: Sample, write_problems: Problems, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(write_problems(1), "--max-cost", 1) == 2
    assert "a limit on cost needs prices, and toy has none" in capsys.readouterr().err


def test_a_dry_run_asks_nothing_and_bounds_what_is_left(
    sample: Sample,
    write_problems: Problems,
    models_file: ModelsFile,
    openai_server: OpenAIServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = write_problems(10, p9={"ground_truth": None})
    models = models_file("a", "b", more="price_in = 1\nprice_out = 10\nmax_tokens = 100")
    few = {"models": models, "max_attempts": 4}
    assert sample(problems, "--dry-run", "--json", **few) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["problems"], said["not_asked"]) == (10, 1)
    assert (said["least_requests"], said["most_requests"]) == (45, 72)
    prompt = said["most_tokens"] // 72 - 100
    assert said["most_cost"] == pytest.approx(72 * (prompt * 1 + 100 * 10) / 1e6)
    assert openai_server.asked == []
    assert {path.name for path in tmp_path.iterdir()} == {"models.toml", "problems.jsonl"}
    assert sample(problems, "--json", max_requests=20, **few) == 1
    capsys.readouterr()
    assert sample(problems, "--dry-run", "--json", **few) == 0
    later = json.loads(capsys.readouterr().out)
    assert (later["recorded"], later["least_requests"]) == (20, 25)
    assert 0 < later["spent"] < said["most_cost"]
