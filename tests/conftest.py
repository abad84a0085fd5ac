"""What all tests share: the optional outside data, and which core is under test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is for the tests that measure time; elsewhere a slow machine would
# make a deadline fail at random.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which core the run was about; a missing compiler must not go unnoticed."""
    from consensuspr import core

    if core.BACKEND == "native":
        terminalreporter.write_line(f"core under test: native, {Path(core.__file__).parent}")
    else:
        terminalreporter.write_line(
            "WARNING: no compiled core is installed; the pure-Python twin was tested", yellow=True
        )


def pytest_configure() -> None:
    """Refuse to run where another core than the one wanted would be tested.

    ``make checked`` and ``make sanitize`` put a core of their own first on the path and name
    its folder in ``CONSENSUSPR_EXPECT_CORE``: without this they could pass on the usual one.
    """
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
    """The folder of outside data; the test is skipped where there is none.

    ``CONSENSUSPR_SHARED`` names it, else it is looked for beside the repository.
    """
    named = os.environ.get("CONSENSUSPR_SHARED")
    folder = Path(named) if named else REPOSITORY.parent / "shared"
    if not folder.is_dir():
        if named:
            pytest.fail(f"CONSENSUSPR_SHARED names {folder}, which is no folder")
        pytest.skip("no outside data: CONSENSUSPR_SHARED is not set and ../shared is absent")
    return folder
