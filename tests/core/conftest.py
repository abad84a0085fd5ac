"""Both engines behind one fixture, so that every test of behaviour runs on each."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import settings


class Engine(NamedTuple):
    """One implementation of the core."""

    name: str
    normalize: Callable[[str | bytes], str]
    Matcher: Callable[..., Any]
    match_batch: Callable[..., Any]
    # Bytes to the normal form and, for each of its bytes, the input bytes [start, end).
    with_offsets: Callable[[bytes], tuple[bytes, list[int], list[int]]]


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"consensuspr.core.native.{name}")
    except ImportError as error:
        pytest.skip(f"the compiled core is not built: {error}")


def native_engine() -> Engine:
    """The compiled engine; skips the test where it is not built."""
    form, matcher = _module("normal_form"), _module("matcher")
    return Engine(
        "native",
        form.normalize,
        matcher.Matcher,
        matcher.match_batch,
        form.normal_form_with_offsets,
    )


def python_engine() -> Engine:
    """The pure-Python engine."""
    from consensuspr.core.pure.matcher import Matcher, match_batch
    from consensuspr.core.pure.normal_form import normal_form, normalize

    def with_offsets(data: bytes) -> tuple[bytes, list[int], list[int]]:
        form = normal_form(data)
        return form.data, list(form.starts), list(form.ends)

    return Engine("python", normalize, Matcher, match_batch, with_offsets)


def alike(times: float = 1) -> settings:
    """Return settings of a property: the same examples in each run, so many times the usual number.

    ``--full`` and ``--examples`` change the usual number.
    """
    examples = max(1, round(times * settings().max_examples))
    return settings(derandomize=True, database=None, max_examples=examples)


# The pure engine is the same under a core with checks or sanitizers.
ENGINES = ["native"] if os.environ.get("CONSENSUSPR_EXPECT_CORE") else ["native", "python"]


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    return native_engine() if request.param == "native" else python_engine()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether all is tested, or what can be done in a newcomer's time."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def engines() -> tuple[Engine, Engine]:
    """Both engines, for tests that compare them."""
    return native_engine(), python_engine()
