"""Shared by all tests: how much is tested, the optional outside data, which core is under test.

``pytest`` leaves out tests that are marked ``slow``, and Hypothesis tries few examples.
``pytest --full`` (``make test-all``) runs everything; ``--examples`` sets the number of examples.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

QUICK_EXAMPLES, FULL_EXAMPLES = 50, 500

REPOSITORY = Path(__file__).resolve().parents[1]

# Benchmarks and faults are scripts of the repository, no part of what is installed.
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which core was tested; a missing compiler must not go unnoticed."""
    from consensuspr import core

    if core.BACKEND == "native":
        terminalreporter.write_line(f"core under test: native, {Path(core.__file__).parent}")
    else:
        terminalreporter.write_line(
            "WARNING: no compiled core is installed; the pure-Python core was tested", yellow=True
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also tests marked slow; more examples")
    parser.addoption("--examples", type=int, help="Hypothesis examples of each property")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, unless ``--full`` is given or a test is named by itself."""
    if config.getoption("--full") or any("::" in argument for argument in config.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of examples; leave no process behind; stop if another core is under test.

    ``make checked`` and ``make sanitize`` put a core of their own first on the path and name
    its folder in ``CONSENSUSPR_EXPECT_CORE``: without this they could pass on the usual one.
    """
    from tests.processes import end_descendants_with_this_process

    end_descendants_with_this_process()
    usual = FULL_EXAMPLES if config.getoption("--full") else QUICK_EXAMPLES
    # Without a deadline: on a slow machine it would fail at random.
    examples = config.getoption("--examples") or usual
    settings.register_profile("tests", deadline=None, print_blob=True, max_examples=examples)
    settings.load_profile("tests")
    wanted = os.environ.get("CONSENSUSPR_EXPECT_CORE")
    if wanted is None:
        return
    from consensuspr import core

    found = Path(core.__file__).resolve()
    if core.BACKEND != "native" or not found.is_relative_to(Path(wanted).resolve()):
        raise pytest.UsageError(
            f"CONSENSUSPR_EXPECT_CORE is {wanted}, but the core is {core.BACKEND} from {found}"
        )


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder that holds ``pyproject.toml``."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of outside data: ``CONSENSUSPR_SHARED``, else ``../shared``; skips without it."""
    named = os.environ.get("CONSENSUSPR_SHARED")
    folder = Path(named) if named else REPOSITORY.parent / "shared"
    if not folder.is_dir():
        if named:
            pytest.fail(f"CONSENSUSPR_SHARED names {folder}, which is no folder")
        pytest.skip("no outside data: CONSENSUSPR_SHARED is not set and ../shared is absent")
    return folder
