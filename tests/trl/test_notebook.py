"""The notebook of a first run with TRL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="trl is not installed: run make test-trl")


@pytest.mark.timeout(900)
def test_the_notebook_trains_and_explains(repository: Path, tmp_path: Path) -> None:
    notebook = json.loads((repository / "examples/trl_first_run.ipynb").read_text("utf-8"))
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    code = "\n".join("".join(cell["source"]) for cell in cells)
    (tmp_path / "sample").symlink_to(repository / "examples" / "sample")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    line = r"^step (\d+): reward ([\d.]+), Acc ([\d.]+), NCR ([\d.]+)$"
    steps = [[float(figure) for figure in found] for found in re.findall(line, done.stdout, re.M)]
    assert [step[0] for step in steps] == [1, 2, 3, 4, 5, 6]
    for _, reward, acc, ncr in steps:
        assert reward == pytest.approx((acc + ncr) / 2, abs=0.011)
    assert max(step[1] for step in steps) > 0.2, "the tiny model reaches nodes"
    assert "= 0.5 · Acc + 0.5 · NCR" in done.stdout
    shown = "".join(text for cell in cells for out in cell["outputs"] for text in out["text"])
    assert len(re.findall(line, shown, re.M)) == len(steps), "the stored outputs are of a run"
