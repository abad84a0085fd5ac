"""Lengths in tokens where the rollouts do not bring them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from consensusbench.require import require
from consensuspr.errors import InputError

CountTokens: TypeAlias = Callable[[Sequence[str]], list[int]]


def open_tokenizer(name: str) -> CountTokens:
    """Return what counts tokens, special ones (beginning, end) left out.

    Args:
        name: path of a ``tokenizer.json`` or of a folder that holds one, else the name of a
            model on the hub of the ``tokenizers`` package.

    Raises:
        InputError: the package is missing, or there is no such tokenizer.
    """
    tokenizers = require("tokenizers", "counting tokens")
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    local = path.is_file()
    if not local and (path.suffix == ".json" or path.is_absolute() or Path(name).is_dir()):
        raise InputError(f"{path}: no such file, so there is no tokenizer to count with")
    try:
        with _quiet_hub():
            tokenizer = (
                tokenizers.Tokenizer.from_file(str(path))
                if local
                else tokenizers.Tokenizer.from_pretrained(name)
            )
    except Exception as error:  # the package raises bare Exception
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the tokenizer {name!r} cannot be loaded: {reason}") from None
    # A tokenizer.json may say to cut or to fill up; either would make every length a lie.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        encoded = tokenizer.encode_batch_fast(
            [_encodable(text) for text in texts], add_special_tokens=False
        )
        return [len(one.ids) for one in encoded]

    return count


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Keep back the hub's warnings of every attempt: the error that ends them says it once."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)


def _encodable(text: str) -> str:
    """Return the text with lone surrogates, which no tokenizer takes, replaced one for one."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
