"""The files of a comparison: the server's dataset, verl's Parquet, and the model to start from.

Reinforcement learning cannot begin at a model that never writes the form.  The teacher of the
supervised phase is right at first and errs on purpose in the end: each result is then wrong with
some probability, and the solution goes on from the wrong one.  So the model learns the form and
most of the arithmetic, and is right in a step often and in a whole chain seldom.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from consensuspr.data import Problem, atomic_file, open_writer, problem_to_row

from .problems import VOCABULARY, draw_chains, flawed_solution

# Seeds of the three streams of problems, and of the untrained model.
VALIDATION_SEED, TRAIN_SEED, WARM_START_SEED, MODEL_SEED = 10_000, 2, 1, 0
# Share of the supervised phase in which the teacher is right: arithmetic is learned from wrong
# solutions too, but several times more slowly.
SOUND_PART = 0.75
# The names of verl's agent loop of one turn, and of ours (`agent_loops.yaml`).
ONE_TURN, TOOL_LOOP = "single_turn_agent", "solution_tool"


@dataclass(frozen=True)
class Recipe:
    """What the files of a comparison are made from.

    Attributes:
        num_train: problems to train on.
        num_validation: problems to validate on, met nowhere else.
        steps, largest: operations of a problem, and its largest number.
        warm_start_steps: updates of the supervised phase.
        batch: solutions in each of them.
        error_rate: probability that the teacher of that phase errs in a step, in the end.
        varied: whether the teacher writes a solution in several ways.
        nodes: whether the dataset has the nodes, or questions and answers alone.
        tool: whether a tool helps with every other problem to train on (`tool_loop.py`).
    """

    num_train: int
    num_validation: int = 128
    steps: int = 4
    largest: int = 30
    warm_start_steps: int = 450
    batch: int = 64
    error_rate: float = 0.4
    varied: bool = False
    nodes: bool = True
    tool: bool = False


class Files:
    """Paths of the files in their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dataset = folder / "dataset.jsonl"
        self.train = folder / "train.parquet"
        self.validation = folder / "validation.parquet"
        self.model = folder / "model"


def prepare(folder: Path, recipe: Recipe, report: Callable[[int], object]) -> Files:
    """Make the files of `recipe` in `folder`, unless they are there.

    ``report`` is called with the number of updates done in the supervised phase.

    Raises:
        SystemExit: the folder holds the files of another recipe.
    """
    files, made_from = Files(folder), folder / "recipe.json"
    if made_from.exists():
        found = json.loads(made_from.read_text())
        if found != asdict(recipe):
            raise SystemExit(f"{folder} was made with {found}, not {asdict(recipe)}: use another")
        return files
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_chains(VALIDATION_SEED, recipe.steps, recipe.largest)
    validation = list(islice(drawn, recipe.num_validation))
    kept = {chain.text for chain in validation}
    drawn = draw_chains(TRAIN_SEED, recipe.steps, recipe.largest, kept)
    train = [
        c.problem(f"train-{i}", "train") for i, c in enumerate(islice(drawn, recipe.num_train))
    ]
    test = [c.problem(f"test-{i}", "test") for i, c in enumerate(validation)]
    with open_writer(files.dataset) as rows:
        for problem in train + test:
            rows.write(problem_to_row(problem if recipe.nodes else replace(problem, nodes=())))
    write_parquet(files.train, train, tool=recipe.tool)
    write_parquet(files.validation, test)
    _make_model(files.model, recipe, kept, report)
    # Last, as a mark that the others are complete.
    with atomic_file(made_from) as stream:
        stream.write(json.dumps(asdict(recipe), indent=1).encode())
    return files


def write_parquet(path: Path, problems: Iterable[Problem], *, tool: bool = False) -> None:
    """Write problems as verl reads them, on request every other one with a tool."""
    with open_writer(path) as rows:
        for index, problem in enumerate(problems):
            truth = {"style": "rule", "ground_truth": problem.ground_truth}
            rows.write(
                {
                    "data_source": problem.data_source,
                    "agent_name": TOOL_LOOP if tool and index % 2 else ONE_TURN,
                    "prompt": [{"role": "user", "content": problem.problem}],
                    "ability": "math",
                    "reward_model": truth,
                    "extra_info": {
                        "problem_id": problem.problem_id,
                        "split": problem.split,
                        "index": index,
                    },
                }
            )


def _solutions(recipe: Recipe, avoid: set[str]) -> Iterator[tuple[str, str]]:
    """Yield problems and the teacher's solutions without end."""
    rng = random.Random(WARM_START_SEED)
    sound = SOUND_PART * recipe.warm_start_steps * recipe.batch
    chains = draw_chains(WARM_START_SEED, recipe.steps, recipe.largest, avoid)
    for number, chain in enumerate(chains):
        rate = 0.0 if number < sound else recipe.error_rate
        solution = flawed_solution(chain, rng, rate, largest=recipe.largest, varied=recipe.varied)
        yield chain.text, solution


def _make_model(
    folder: Path, recipe: Recipe, kept: set[str], report: Callable[[int], object]
) -> None:
    # torch takes seconds to import, and a second run needs none.
    import torch

    from .model import Llama, Tokens, save, warm_up

    # A batch is so small that several threads wait for each other on a busy machine.
    torch.set_num_threads(1)
    tokens = Tokens(VOCABULARY)
    model = Llama(len(tokens.words), MODEL_SEED)
    solutions = _solutions(recipe, kept)
    steps, batch = recipe.warm_start_steps, recipe.batch
    warm_up(model, tokens, solutions, steps=steps, batch=batch, report=report)
    save(model, tokens, folder)
