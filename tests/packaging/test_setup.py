"""setup.py: packages from four roots, and the variants of the compiled core."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def setup_module(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """setup.py as a module; it works relative to its own folder, as a build does."""
    for name in ("BUILD", "REQUIRE_NATIVE", "PURE_PYTHON"):
        monkeypatch.delenv(f"CONSENSUSPR_{name}", raising=False)
    monkeypatch.chdir(repository)
    spec = importlib.util.spec_from_file_location("consensuspr_setup", repository / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_module_belongs_to_a_package(setup_module: ModuleType, repository: Path) -> None:
    packaged = {repository / folder for folder in setup_module.packages().values()}
    forgotten = [
        path
        for root in setup_module.SOURCE_ROOTS
        for path in (repository / root / "consensuspr").rglob("*.py")
        if path.parent not in packaged
    ]
    assert forgotten == []


def test_links_of_the_readme_are_absolute_if_the_address_is_set(
    setup_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "![A](docs/a.svg) [b](docs/b.md#c) [d](https://d.org) [e](#f)"
    (tmp_path / "README.md").write_text(text)
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "pyproject.toml"
    project.write_text("[project.urls]\n")
    assert setup_module.readme() == text
    project.write_text('[project.urls]\nRepository = "https://host/us/it/"\n')
    blob, raw = "https://host/us/it/blob/main", "https://host/us/it/raw/main"
    assert setup_module.readme() == (
        f"![A]({raw}/docs/a.svg) [b]({blob}/docs/b.md#c) [d](https://d.org) [e](#f)"
    )


@pytest.mark.parametrize(
    ("source", "checked"),
    [
        (
            "# cython: boundscheck=False, language_level=3",
            "# cython: boundscheck=True, language_level=3",
        ),
        ("@cython.boundscheck(False)", "@cython.boundscheck(True)"),
        ("with cython.initializedcheck( False ):", "with cython.initializedcheck( True ):"),
        ("#cython: nonecheck = False", "#cython: nonecheck = True"),
        # Negative indices stay unsupported: with bounds checked they raise instead.
        ("# cython: wraparound=False", "# cython: wraparound=False"),
        ("flag = False", "flag = False"),
    ],
)
def test_a_checked_build_switches_checks_on(
    setup_module: ModuleType, source: str, checked: str
) -> None:
    assert setup_module.CHECK_SWITCHED_OFF.sub(r"\1\2True", source) == checked


def test_a_build_with_checks_has_a_folder_of_its_own(
    setup_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a plain build would take its binaries; without the core, nothing is compiled."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(setup_module, "setup", lambda **settings: calls.append(settings))
    monkeypatch.setenv("CONSENSUSPR_PURE_PYTHON", "1")
    for variant in ("release", "checked", "sanitize"):
        monkeypatch.setenv("CONSENSUSPR_BUILD", variant)
        setup_module.main()
    bases = [call["options"].get("build", {}).get("build_base") for call in calls]
    assert bases == [None, "build/checked/base", "build/sanitize/base"]
    assert [call["ext_modules"] for call in calls] == [[], [], []]
