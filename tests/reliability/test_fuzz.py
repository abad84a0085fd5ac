"""The fuzzing targets hold on the corpus, without the fuzzer; and notice what breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensuspr.core import BACKEND
from consensuspr.core.statements import Key
from reliability import fuzz

if BACKEND != "native":
    pytest.skip("the target core needs the compiled core", allow_module_level=True)
pytest.importorskip("starlette", reason="the HTTP dialects need the extra http")


def test_every_target_has_a_corpus() -> None:
    assert sorted(path.name for path in fuzz.CORPUS.iterdir()) == sorted(fuzz.TARGETS)


@pytest.mark.parametrize("name", sorted(fuzz.TARGETS))
def test_a_target_holds_on_its_corpus_and_on_cuts_of_it(name: str) -> None:
    run = fuzz.TARGETS[name]()
    for file in sorted((fuzz.CORPUS / name).iterdir()):
        data = file.read_bytes()
        for end in {0, len(data) // 3, len(data) // 2, len(data) - 1, len(data)}:
            run(data[:end])
        run(data.replace(b"1", "１½".encode()))


def test_a_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fuzz.TARGETS["core"]()
    monkeypatch.setattr("consensuspr.core.pure.normal_form.normalize", lambda text: "x")
    with pytest.raises(AssertionError):
        run(b"1+1=2\n---\n1+1=2")


def test_a_hit_that_the_guard_does_not_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fuzz.TARGETS["core"]()
    run(b"1+1=2\n---\n1+1=2")
    monkeypatch.setattr(
        "consensuspr.core.pure.statements.expression_keys",
        lambda text: [Key((9, 1), ((4, 1), (5, 1)))] if "4" in text else [Key((2, 1), ())],
    )
    with pytest.raises(AssertionError, match="not counted"):
        fuzz.TARGETS["core"]()(b"1+1=2\n4+5\n---\n1+1=2, 4+5")


def test_an_unknown_target_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["cores"])
    assert ended.value.code == 2
    assert "there is no target 'cores'; there are core, request" in capsys.readouterr().err


def test_what_breaks_a_target_ends_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("atheris", reason="fuzzing needs the extra fuzz")
    monkeypatch.setattr(fuzz, "FOUND", tmp_path)
    corpus = tmp_path / "broken/derived-forms"
    corpus.mkdir(parents=True)
    (corpus / "fine").write_bytes(b"1+1=2")
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "broken")
    assert fuzz.main(["derived-forms", "--seconds", "1"]) == 0
    assert "derived-forms" in capsys.readouterr().out
    # No input has fewer bytes than none: the limit on memory is what breaks it.
    monkeypatch.setattr(fuzz, "MAX_MEMORY_MB", 1)
    assert fuzz.main(["derived-forms", "--seconds", "2"]) == 1
    assert "again: python -m reliability.fuzz --child derived-forms" in capsys.readouterr().err
