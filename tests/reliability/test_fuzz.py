"""The fuzzing targets hold on the corpus, without the fuzzer."""

from __future__ import annotations

import pytest

from consensuspr.core import BACKEND
from reliability import fuzz

if BACKEND != "native":
    pytest.skip("the target core needs the compiled core", allow_module_level=True)
pytest.importorskip("starlette", reason="the HTTP target needs the extra http")


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
