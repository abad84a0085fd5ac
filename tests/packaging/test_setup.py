"""What setup.py decides: packages from four roots, and how the core is compiled."""

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


def test_a_package_has_the_name_of_its_folder(setup_module: ModuleType) -> None:
    for name, folder in setup_module.packages().items():
        assert folder.endswith(name.replace(".", "/"))


def test_tests_and_tools_are_not_packaged(setup_module: ModuleType) -> None:
    assert {name.partition(".")[0] for name in setup_module.packages()} <= {
        "consensuspr",
        "consensusbench",
    }


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


def test_a_checked_build_copies_what_the_core_is_made_of(
    setup_module: ModuleType, tmp_path: Path
) -> None:
    setup_module.copy_with_checks_on(tmp_path)
    kinds = setup_module.CYTHON_FILES
    copied = {path.relative_to(tmp_path) for path in setup_module.cython_files(tmp_path, *kinds)}
    assert copied == {
        path.relative_to(root)
        for root in setup_module.CYTHON_ROOTS
        for path in setup_module.cython_files(root, *kinds)
    }
    assert any(path.suffix == ".pyx" for path in copied)
    texts = [path.read_text() for path in setup_module.cython_files(tmp_path, ".pyx", ".pxi")]
    assert not any("boundscheck=False" in text or "boundscheck(False)" in text for text in texts)


def test_an_unknown_build_is_refused(
    setup_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSENSUSPR_BUILD", "fast")
    with pytest.raises(SystemExit, match="must be one of release, checked, sanitize, got 'fast'"):
        setup_module.variant()


def test_without_the_core_nothing_is_compiled(
    setup_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSENSUSPR_PURE_PYTHON", "1")
    assert setup_module.extensions() == []


def test_what_is_built_with_checks_is_not_taken_for_a_plain_build(
    setup_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases: list[str | None] = []

    def asked(**said: Any) -> None:
        bases.append(said["options"].get("build", {}).get("build_base"))

    monkeypatch.setattr(setup_module, "setup", asked)
    monkeypatch.setenv("CONSENSUSPR_PURE_PYTHON", "1")
    for variant in ("release", "checked", "sanitize"):
        monkeypatch.setenv("CONSENSUSPR_BUILD", variant)
        setup_module.main()
    assert bases == [None, "build/checked/base", "build/sanitize/base"]
