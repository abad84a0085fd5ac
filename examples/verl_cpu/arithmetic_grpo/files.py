"""The files of a comparison: the server's dataset, verl's Parquet, and the model to start from.

All follow from the settings, so a folder that has them is not made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from consensuspr.data import Problem, Row, atomic_file, open_writer, problem_to_row

from .problems import DEFAULT_TASK, Task, draw_chains, to_problem

# Seeds of the three streams of problems; those of a comparison's seeds differ in sampling alone.
VALIDATION_SEED, TRAIN_SEED, WARM_START_SEED, MODEL_SEED = 10_000, 2, 1, 0

# What verl calls its agent loop of one turn, and ours (`agent_loops.yaml`).
ONE_TURN, TOOL_LOOP = "single_turn_agent", "solution_tool"


@dataclass(frozen=True)
class Recipe:
    """What the files of a comparison are made from.

    Attributes:
        num_train: problems to train on.
        num_validation: problems to validate on, met nowhere else.
        task: how hard they are.
        warm_start_steps: updates of the supervised phase.
        batch: solutions in each of them.
        error_rate: probability that the teacher of that phase errs in a step, in the end.
        varied: whether the teacher writes a solution in several ways, so that a problem has
            several right texts.
        nodes: whether the dataset has the nodes, or questions and answers alone.
        tool: whether a tool helps with every other problem to train on (`tool_loop.py`).
    """

    num_train: int
    num_validation: int = 128
    task: Task = DEFAULT_TASK
    warm_start_steps: int = 450
    batch: int = 64
    error_rate: float = 0.4
    varied: bool = False
    nodes: bool = True
    tool: bool = False


@dataclass(frozen=True)
class Files:
    """Where the files lie."""

    folder: Path

    @property
    def dataset(self) -> Path:
        return self.folder / "dataset.jsonl"

    @property
    def train(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def validation(self) -> Path:
        return self.folder / "validation.parquet"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.json"


def prepare(folder: Path, recipe: Recipe, report: Callable[[int], None]) -> Files:
    """Make the files of `recipe` in `folder`, unless they are there.

    ``report`` is called with the number of updates done in the supervised phase.

    Raises:
        SystemExit: The folder holds the files of another recipe.
    """
    files = Files(folder)
    if files.recipe.exists():
        made = json.loads(files.recipe.read_text())
        if made != asdict(recipe):
            raise SystemExit(f"{folder} was made with {made}, not {asdict(recipe)}: use another")
        return files
    folder.mkdir(parents=True, exist_ok=True)
    validation = list(islice(draw_chains(VALIDATION_SEED, recipe.task), recipe.num_validation))
    kept = {chain.text for chain in validation}
    train = list(islice(draw_chains(TRAIN_SEED, recipe.task, avoid=kept), recipe.num_train))
    train_problems = [to_problem(c, f"train-{i}", "train") for i, c in enumerate(train)]
    test_problems = [to_problem(c, f"test-{i}", "test") for i, c in enumerate(validation)]
    with open_writer(files.dataset) as rows:
        for problem in train_problems + test_problems:
            rows.write(problem_to_row(problem if recipe.nodes else replace(problem, nodes=())))
    write_parquet(files.train, train_problems, tool=recipe.tool)
    write_parquet(files.validation, test_problems)
    _make_model(files.model, recipe, kept, report)
    # Last, because it says that the others are complete.
    with atomic_file(files.recipe) as stream:
        stream.write(json.dumps(asdict(recipe), indent=1).encode())
    return files


def write_parquet(path: Path, problems: Iterable[Problem], *, tool: bool = False) -> None:
    """Write problems as verl reads them, every other one with a tool if that is wanted."""
    with open_writer(path) as rows:
        for index, problem in enumerate(problems):
            helped = tool and index % 2 == 1
            rows.write(_verl_row(problem, index, TOOL_LOOP if helped else ONE_TURN))


def _verl_row(problem: Problem, index: int, agent_name: str) -> Row:
    return {
        "data_source": problem.data_source,
        "agent_name": agent_name,
        "prompt": [{"role": "user", "content": problem.problem}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
        "extra_info": {
            "problem_id": problem.problem_id,
            "split": problem.split,
            "index": index,
        },
    }


def _make_model(
    folder: Path, recipe: Recipe, kept: set[str], report: Callable[[int], None]
) -> None:
    # torch and transformers take seconds to import, and a second run needs neither.
    try:
        from .model import make_model, make_tokenizer, save, warm_up
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{error.name} is not installed here; examples/verl_cpu/README.md says what to install"
        ) from None

    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed=MODEL_SEED)
    warm_up(
        model,
        tokenizer,
        task=recipe.task,
        steps=recipe.warm_start_steps,
        batch=recipe.batch,
        error_rate=recipe.error_rate,
        varied=recipe.varied,
        seed=WARM_START_SEED,
        avoid=kept,
        report=report,
    )
    save(model, tokenizer, folder)
