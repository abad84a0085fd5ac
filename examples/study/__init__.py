"""A study of what the rewards of consensus nodes do to training: `PLAN.md`, `docs/study.md`.

- `task.py`: word problems, their nodes by the author, and three styles of writing;
- `model.py`: tokens, a small Llama, sampling, and the warm start;
- `arms.py`: what is compared, and the nodes of the controls;
- `inputs.py`: problems, datasets and warm starts, made once;
- `grpo.py`: the training loop;
- `runner.py`: which runs there are, and doing those that are missing;
- `weak.py`: runs from weak starts;
- `analysis.py`, `pictures.py`: statistics, tables and pictures;
- `verl_runs.py`: the same in unmodified verl.

How a server is started and how verl runs on a CPU is taken from `examples/verl_cpu`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "verl_cpu"))
