"""``consensusbench export`` as a person types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.consensusbench.conftest import problem
from tests.consensusbench.export.conftest import held_out, train

if TYPE_CHECKING:
    from tests.commands import Run
    from tests.consensusbench.export.conftest import ExportBench


def test_an_export_says_what_it_wrote(bench: ExportBench, run: Run) -> None:
    path = bench.write(train(1), train(2, nodes=[]), held_out(3))
    code, out, _ = run("export", path, "--format", "verl", "--output", bench.out)
    assert code == 0 and out.splitlines() == [
        f"{bench.out}/train.parquet: 1 row (arithmetic 1)",
        f"{bench.out}/val.parquet: 1 row (arithmetic 1)",
        "left out: 1 without nodes (first: 'p2')",
    ]


@pytest.mark.parametrize("format", ["verl", "hf"])
def test_problems_without_a_split_are_told_with_their_number(
    format: str, bench: ExportBench, run: Run
) -> None:
    for silent in ((), (problem(3), problem(4))):
        path = bench.write(train(1), held_out(2), *silent)
        code, out, err = run("export", path, "--format", format, "--output", bench.out, "--json")
        assert ("warning: 2 problems have no split and" in err) is bool(silent)
        assert (counts := json.loads(out))["format"] == format and code == 0
        assert sum(counts["rows"].values()) == 2 + len(silent)
