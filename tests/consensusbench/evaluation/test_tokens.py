"""Lengths in tokens by a tokenizer made for the test."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from consensusbench.evaluation.scored import open_tokenizer, score_files
from consensuspr.errors import InputError


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of words, which says to cut at 3, to fill up, and to mark the beginning."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: at for at, word in enumerate(["[UNK]", "[BOS]", "so", "x", "is"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 1)]
    )
    made.enable_truncation(3)
    made.enable_padding(length=50)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_all_tokens_count_and_no_others(tokenizer: Path) -> None:
    count = open_tokenizer(str(tokenizer))
    assert count(["so x is so x is", "x", "", "unheard of"]) == [6, 1, 0, 2]
    assert open_tokenizer(str(tokenizer.parent))(["so x"]) == [2]


def test_text_that_is_no_unicode_counts_too(tokenizer: Path) -> None:
    assert open_tokenizer(str(tokenizer))(["so \ud800 x"]) == [3]


def test_a_tokenizer_counts_where_rollouts_do_not_say(tokenizer: Path, tmp_path: Path) -> None:
    dataset, rollouts, output = (tmp_path / f"{name}.jsonl" for name in ("d", "r", "o"))
    node = {"expressions": ["x=15"], "derived": []}
    dataset.write_text(json.dumps({"problem_id": "p", "ground_truth": "15", "nodes": [node]}))
    rows = [{"problem_id": "p", "response": "so x=15", "num_tokens": n} for n in (9, None, 0)]
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = score_files([rollouts], dataset, tokenizer=str(tokenizer), scored_output=output)
    assert [r.num_tokens for r in scored.rollouts] == [9, 4, 4]
    assert (scored.tokenizer, scored.num_tokenized) == (str(tokenizer), 2)
    written = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["num_tokens"], row["tpn"]) for row in written] == [(9, 9.0), (4, 4.0), (4, 4.0)]


def test_the_hub_does_not_repeat_what_the_error_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    hub = logging.getLogger("huggingface_hub.utils")

    class Offline:
        @staticmethod
        def from_pretrained(name: str) -> None:
            hub.warning("Retrying in 1s [Retry 1/5].")
            raise Exception("no connection")

    monkeypatch.setattr(tokenizers, "Tokenizer", Offline)
    with pytest.raises(InputError, match="the tokenizer 'no/such' cannot be loaded: no conn"):
        open_tokenizer("no/such")
    assert not caplog.records
    hub.warning("other work")
    assert [record.getMessage() for record in caplog.records] == ["other work"]


def test_no_tokenizer_leaves_lengths_unknown(tmp_path: Path) -> None:
    dataset, rollouts = tmp_path / "d.jsonl", tmp_path / "r.jsonl"
    dataset.write_text(json.dumps({"problem_id": "p", "ground_truth": "1", "nodes": []}))
    rollouts.write_text(json.dumps({"problem_id": "p", "response": "1"}))
    assert score_files([rollouts], dataset).rollouts[0].num_tokens is None


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "tokenizer.json"
    with pytest.raises(InputError, match=r"tokenizer\.json: no such file"):
        open_tokenizer(str(missing))
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded"):
        open_tokenizer(str(broken))
