"""A study of the rewards of consensus nodes in training: `PLAN-3.md`.

- `task.py`: word problems, their nodes by the author, and three styles of writing;
- `model.py`: the policy's model and its files;
- `nodes.py`: the datasets, and the nodes of the controls;
- `grpo.py`: the training loop and the evaluation;
- `starts.py`: the warm-ups that runs begin from;
- `plan.py`: arms, starts, runs, and the choice of learning rates;
- `runner.py`: doing the runs that are missing;
- `analysis.py`: statistics and tables;
- `earlier/`: plans and results of two earlier studies.

The model comes from `examples/verl_cpu`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "verl_cpu"))
