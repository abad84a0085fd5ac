"""Which models are asked: names on the command line, files, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensusbench.llm import ModelSettings, read_models
from consensusbench.llm.types import public_url
from consensuspr.errors import InputError

FILE = """
[defaults]
temperature = 1.0
max_tokens = 100

[[models]]
model = "big"
price_in = 0.25
price_out = 2
requests_per_minute = 500

[[models]]
model = "org/small"
label = "small"
base_url = "http://127.0.0.1:8000/v1"
api_key_env = "SMALL_KEY"
temperature = "default"
extra_body = { top_k = 20 }
"""


def models_of(tmp_path: Path, text: str, *names: str, **defaults: Any) -> tuple[ModelSettings, ...]:
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf-8")
    return read_models(names, path, defaults)


def test_a_file_says_more_than_its_defaults_and_these_more_than_the_caller(tmp_path: Path) -> None:
    given = {"temperature": 2.0, "top_p": 0.9, "concurrency": 4, "max_tokens": None}
    named, big, small = models_of(tmp_path, FILE, "n@http://h/v1", **given)
    assert (named.model, named.base_url, named.temperature) == ("n", "http://h/v1", 2.0)
    assert named.max_tokens is None
    assert (big.temperature, big.max_tokens, big.top_p, big.price_out) == (1.0, 100, 0.9, 2)
    assert (small.name, small.temperature, small.extra_body) == ("small", None, {"top_k": 20})
    assert small.concurrency == 4


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("gpt-5-mini", "gpt-5-mini", None),
        ("Qwen/Qwen3-8B@http://gpu:8000/v1", "Qwen/Qwen3-8B", "http://gpu:8000/v1"),
        ("a@b@https://u:p@h/v1", "a@b", "https://u:p@h/v1"),
        ("model@v2", "model@v2", None),
        ("model@1.5", "model@1.5", None),
        ("workers/@cf/meta/llama-3", "workers/@cf/meta/llama-3", None),
    ],
)
def test_a_name_may_carry_its_address(text: str, name: str, url: str | None) -> None:
    [model] = read_models([text], None, {})
    assert (model.model, model.base_url) == (name, url)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[[models]]\nmodel = "a"\nsecret = 1', "unknown key 'secret'"),
        ('[[models]]\nmodel = "a"\napi_key = "sk-1"', "keys stand in the environment"),
        ('[[models]]\nmodel = "a"\nmax_tokens = "many"', "max_tokens of a must be a whole number"),
        ('[[models]]\nmodel = "a"\nmax_tokens = true', "max_tokens of a must be a whole number"),
        ('[[models]]\nmodel = "a"\ntop_p = 3', "top_p of a must be at most 1, got 3"),
        ('[[models]]\nmodel = "a"\nbase_url = "host:80"', "must begin with http:// or https://"),
        ('[[models]]\nmodel = "a"\nmax_tokens_field = "n"', "must be 'max_tokens' or 'max_comp"),
        ('[[models]]\nmodel = "a"\nextra_body = 3', "extra_body of a must be a table"),
        ('[[models]]\nmodel = "a"\nstream_usage = 1', "stream_usage of a must be true or false"),
        ("[[models]]\ntemperature = 1", "a model has no name"),
        ('[[models]]\nmodel = ""', "a model has an empty name"),
        ('[[models]]\nmodel = "a"\n[[models]]\nmodel = "a"', "two models are called 'a'"),
        ('[[model]]\nmodel = "a"', "unknown table or key 'model'"),
        ('models = "a"', r"must hold \[\[models\]\] tables"),
        ("", r"must hold \[\[models\]\] tables"),
        ("models = [", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        models_of(tmp_path, text)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:9/v1", "10.0.0.7", "gpu:8000/v1", "gpu/v1", "localhost", "a.example", "ftp://h/v1"],
)
def test_an_address_without_its_scheme_is_no_part_of_a_name(address: str) -> None:
    with pytest.raises(InputError) as caught:
        read_models([f"qwen@{address}"], None, {})
    assert str(caught.value) == (
        f"--model qwen@{address}: the address {address} must begin with http:// or https://"
    )


def test_no_model_at_all_and_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model is named"):
        read_models([], None, {})
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        read_models([], tmp_path / "none.toml", {})


def test_neither_provenance_nor_messages_hold_a_secret() -> None:
    url = "https://user:pass@host:1/v1?token=t#f"
    model = ModelSettings("m", base_url=url, api_key_env="MY_KEY", price_in=1, label="l")
    assert model.provenance() == {
        "name": "l",
        "model": "m",
        "temperature": None,
        "top_p": None,
        "max_tokens": None,
        "extra_body": {},
    }
    assert public_url(url) == "https://host:1/v1"


def test_openai_itself_knows_the_limit_by_another_name() -> None:
    assert ModelSettings("m").limit_field == "max_completion_tokens"
    assert ModelSettings("m", base_url="http://h/v1").limit_field == "max_tokens"
    assert ModelSettings("m", max_tokens_field="max_tokens").limit_field == "max_tokens"
