"""A study of the rewards of consensus nodes in training: `PLAN.md`, `docs/study.md`.

- `task.py`: word problems, their nodes by the author, and three styles of writing;
- `arms.py`: the rewards that are compared, and the nodes of the controls;
- `inputs.py`: problems, datasets and warm starts, made once;
- `grpo.py`: the training loop;
- `runner.py`: the runs, and doing those that are missing;
- `weak.py`: runs from weak starts;
- `analysis.py`, `pictures.py`: statistics, tables and pictures;
- `verl_runs.py`: the same in unmodified verl.

Model, server and verl on a CPU are those of `examples/verl_cpu`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "verl_cpu"))
