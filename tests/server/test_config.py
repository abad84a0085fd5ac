"""Where settings come from, which wins, and what is said of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ByteSize

from consensuspr.errors import InputError
from consensuspr.server.config import ServerConfig, load_config, parse_datasets
from consensuspr.settings import environment_name

DATASETS = {"datasets": {"default": "problems.jsonl"}}


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "serve.toml"
        path.write_text(text)
        return path

    return write


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(toml: Any) -> None:
    file = toml('workers = 1\ngrace_s = 1\nmax_rollouts = 11\n[datasets]\nmath = "math.jsonl"\n')
    environment = {"CONSENSUSPR_GRACE_S": "2", "CONSENSUSPR_MAX_ROLLOUTS": "22", "HOME": "/"}
    config = load_config(
        file=file, environment=environment, overrides={"max_rollouts": 33, "address": None}
    )
    assert (config.workers, config.grace_s, config.max_rollouts) == (1, 2.0, 33)
    assert config.address == "127.0.0.1:50051"
    assert config.datasets == {"math": file.parent / "math.jsonl"}


def test_absolute_paths_in_a_file_stay_as_they_are(toml: Any) -> None:
    config = load_config(file=toml('[datasets]\na = "/data/a.jsonl"\n'))
    assert config.datasets == {"a": Path("/data/a.jsonl")}


def test_datasets_of_the_environment() -> None:
    config = load_config(environment={"CONSENSUSPR_DATASETS": "a=/x.jsonl,b=/y=z.parquet"})
    assert config.datasets == {"a": Path("/x.jsonl"), "b": Path("/y=z.parquet")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.jsonl"], {"default": "a.jsonl"}),
        (["math=a.jsonl", "b.jsonl"], {"math": "a.jsonl", "default": "b.jsonl"}),
        (["./x=y/a.jsonl"], {"default": "./x=y/a.jsonl"}),
    ],
)
def test_datasets_of_the_command_line(arguments: list[str], expected: dict[str, str]) -> None:
    assert {n: str(p) for n, p in parse_datasets(arguments).items()} == {
        n: str(Path(p)) for n, p in expected.items()
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "b"], r"two datasets are called 'default' \(a and b\); name them"),
        (["x=a", "x=b"], "two datasets are called 'x'"),
        (["=a"], "dataset must be PATH or NAME=PATH, got '=a'"),
        (["a="], "dataset must be PATH or NAME=PATH, got 'a='"),
    ],
)
def test_datasets_that_cannot_be_told_apart(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_datasets(arguments)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("worker = 3", "unknown setting 'worker' in .*serve.toml; did you mean 'workers'?"),
        ("colour = 3", "unknown setting 'colour' in .*; known settings: datasets, address, "),
        ("workers = [3", ".*serve.toml is not valid TOML: "),
        ("workers = 0", r"workers \(in .*serve.toml\): .* greater than or equal to 1, got 0"),
        ("workers = 'many'", r"workers \(in .*\): .*integer.*, got 'many'"),
        ("datasets = 'a.jsonl'", r"datasets \(in .*\): .*dictionary, got 'a.jsonl'"),
        ("address = 'here'", r"address \(in .*\): address must be HOST:PORT, got 'here'"),
        ("metrics_address = ''", r"metrics_address \(in .*\): address must be HOST:PORT, got ''"),
        ("log_format = 'xml'", r"log_format \(in .*\): .*'text' or 'json', got 'xml'"),
        ("grace_s = nan", r"grace_s \(in .*\): .*, got nan"),
        ("answer_memory_bytes = '1MiB'", r"answer_memory_bytes .*greater than or equal to"),
        ("max_inline_bytes = '8GiB'", r"max_inline_bytes .*less than or equal to 4294967295"),
        (
            "max_message_bytes = '1MiB'",
            r"max_message_bytes \(1048576\) must be at least max_response_bytes \(16777216\)",
        ),
        (
            "max_message_bytes = '1GiB'",
            r"queue_limit_bytes \(268435456\) must be at least max_message_bytes \(1073741824\)",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(toml: Any, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        load_config(file=toml(text), overrides=None if "datasets" in text else DATASETS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variable", ["CONSENSUSPR_WORKER", "CONSENSUSPR_GRACE"])
def test_a_misspelt_variable_is_refused(variable: str) -> None:
    with pytest.raises(InputError, match=f"environment: {variable}; did you mean CONSENSUSPR_"):
        load_config(environment={variable: "3"}, overrides=DATASETS)


@pytest.mark.parametrize(
    "variable",
    ["CONSENSUSPR_SHARED", "CONSENSUSPR_BUILD", "CONSENSUSPR_TRACEBACK", "CONSENSUSPR_PURE_PYTHON"],
)
def test_variables_of_other_parts_of_the_product_are_left_alone(variable: str) -> None:
    assert load_config(environment={variable: "3"}, overrides=DATASETS).workers >= 1


def test_a_setting_that_the_command_line_does_not_have() -> None:
    with pytest.raises(InputError, match="unknown setting 'wokers' in the command line"):
        load_config(overrides={**DATASETS, "wokers": 2})


def test_a_server_without_a_dataset() -> None:
    with pytest.raises(InputError, match="no dataset was given"):
        load_config()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none.toml: No such file"):
        load_config(file=tmp_path / "none.toml")


def test_threads_are_what_the_workers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    config = load_config(overrides=DATASETS)
    assert (config.workers, config.match_threads) == (4, 2)
    assert load_config(overrides={**DATASETS, "workers": 16}).match_threads == 1
    assert load_config(overrides={**DATASETS, "threads": 5}).match_threads == 5


def test_every_setting_is_documented_with_its_default(repository: Path) -> None:
    text = (repository / "docs/serve.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, flags=re.MULTILINE))
    for name, field in ServerConfig.model_fields.items():
        assert name in rows, f"{name} is not in the table of settings"
        if not field.is_required() and field.default_factory is None:
            assert rows[name].strip("` ") == _as_documented(field.default), name
        assert environment_name("CONSENSUSPR", name) == f"CONSENSUSPR_{name.upper()}"
    assert set(ServerConfig.model_fields) <= set(rows)


def _as_documented(default: Any) -> str:
    match default:
        case None:
            return "off"
        case ByteSize():
            return default.human_readable(separator=" ").replace(".0", "")
        case float():
            return f"{default:g}"
        case _:
            return str(default)
