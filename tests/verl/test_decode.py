"""Tokens written from a table, against the tokenizer's own ``decode``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from consensuspr.client.verl.decode import Decoder, TokenBytes

TEXT = "so $12 \\times 3 = 36$, €5 · ½ ≈ 漢字 🙂 isn't it ? yes , and that's all . <think>"
NONE = 5  # ids behind the vocabulary, which models with padded embeddings may write


def byte_level(**settings: Any) -> Any:
    """Return a byte-level tokenizer with special and ordinary added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [TEXT] * 5,
        trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=["<pad>", "<eos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens(["<think>", "a b é"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", **settings
    )


TOKENIZER = byte_level()
TABLE = TokenBytes.of(TOKENIZER)


@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=60))
def test_a_table_writes_what_the_tokenizer_writes(ids: list[int]) -> None:
    assert TABLE is not None
    expected = TOKENIZER.decode(torch.tensor(ids, dtype=torch.long), skip_special_tokens=True)
    assert TABLE.join(torch.tensor(ids, dtype=torch.long)).decode() == expected


def test_ids_of_no_token_are_left_to_the_tokenizer() -> None:
    ids = [*TOKENIZER.encode(TEXT), len(TOKENIZER) + NONE, *TOKENIZER.encode(" end")]
    text = asyncio.run(Decoder(TOKENIZER).text(torch.tensor(ids)))
    assert text == TOKENIZER.decode(ids, skip_special_tokens=True) == f"{TEXT} end"


def test_ids_that_are_none_fail_alone() -> None:
    async def all_of(*given: Any) -> list[Any]:
        decoder = Decoder(TOKENIZER)
        return await asyncio.gather(*map(decoder.text, given), return_exceptions=True)

    ids = TOKENIZER.encode(TEXT)
    first, second, third = asyncio.run(all_of(ids, None, ids))
    assert first == third == TEXT.encode()
    assert isinstance(second, TypeError)


def test_a_tokenizer_that_writes_otherwise_has_no_table() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.decoder = decoders.WordPiece()
    assert TokenBytes.of(PreTrainedTokenizerFast(tokenizer_object=words)) is None

    class Shouting(PreTrainedTokenizerFast):  # type: ignore[misc]  # no types
        def _decode(self, *args: Any, **settings: Any) -> str:
            return str(super()._decode(*args, **settings)).upper()

    assert TokenBytes.of(Shouting(tokenizer_object=TOKENIZER.backend_tokenizer)) is None


def test_a_tokenizer_that_cleans_blanks_up_is_not_replaced() -> None:
    cleaning = byte_level(
        clean_up_tokenization_spaces=True,
        clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output=True,
    )
    ids = cleaning.encode("yes .", add_special_tokens=False)
    assert cleaning.decode(ids) == "yes."
    assert TokenBytes.of(cleaning) is None
