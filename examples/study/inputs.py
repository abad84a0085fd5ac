"""What all runs begin from: problems, datasets of nodes, and warm-started models.

Made once and committed, since a run is comparable with another only where both began alike, and
floating-point sums differ from machine to machine.  `facts.json` has their digest.

Training problems are those of a larger pool for which `consensusbench build` finds nodes, so that
the author's nodes and the built ones are of the same problems; held-out ones are not chosen.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from arithmetic_grpo.training import running_server

from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.core import Matcher
from consensuspr.data import Problem, atomic_file, open_writer, problem_to_row, read_problems

from .arms import COUNTED, NUM_WARM_STARTS, Nodes, by_lot, counted, formal, shuffled
from .model import END, Llama, Tokens, add_noise, generate, warm_up
from .task import LONGER_STAGES, STYLES, WARM_STAGES, Story, draw_stories, write

# Seeds of the streams of problems, and of the controls.
HELD_OUT_SEED, LONGER_SEED, SELECTION_SEED, TRAIN_SEED, WARM_SEED = 10, 20, 30, 40, 50
CONTROL_SEED = 60

# Updates between two looks at how good a model is.
_LOOK_EVERY = 20
# Of the search for a weak start: samples a problem, and steps.  1 % of 4,096 is 41, give or take 6.
_WEAK_SAMPLES, _HALVINGS = 16, 10

# Of problems, how many texts of each, and a seed; the texts of each problem.
Writer = Callable[[Sequence[Problem], int, int], list[list[str]]]


@dataclass(frozen=True)
class Recipe:
    """What the inputs are made from.

    Attributes:
        train, pool: problems to train on, and those from which they are taken.
        held_out, longer: problems to evaluate on, of as many stages and of one more.
        selection: problems on which learning rates are chosen.
        warm_steps: updates of a warm start that its schedule is made for, of 64 solutions each.
        start_at: a warm start ends as soon as so large a part of its responses is right
            throughout; 0: it makes all of its updates.
        more_steps: further updates of the models whose rollouts nodes are built from, each on
            solutions of one style; 0: no models, right solutions are taken as they are, which is
            quick, and for trying things out.
        built_from: rollouts of each of those to a problem.
        lots_from: rollouts of each warm start to a problem, for the control `random`.
    """

    train: int = 400
    pool: int = 480
    held_out: int = 512
    longer: int = 256
    selection: int = 256
    warm_steps: int = 900
    start_at: float = 0.1
    more_steps: int = 300
    built_from: int = 8
    lots_from: int = 16


@dataclass(frozen=True)
class Inputs:
    """Where they lie."""

    folder: Path

    @property
    def facts(self) -> Path:
        return self.folder / "facts.json"

    def dataset(self, nodes: Nodes) -> Path:
        return self.folder / f"{nodes}.jsonl.gz"

    def warm_start(self, number: int) -> Path:
        return self.folder / f"warm-start-{number}.npz"

    def files(self) -> list[Path]:
        return [
            *map(self.dataset, Nodes),
            *map(self.warm_start, range(NUM_WARM_STARTS)),
        ]

    def digest(self) -> str:
        """Return what tells these inputs from others."""
        return str(json.loads(self.facts.read_text())["digest"])

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve all datasets with `consensuspr serve`, and yield its address."""
        options = [
            part
            for nodes in Nodes
            for part in ("--dataset", f"{nodes}={self.dataset(nodes).absolute()}")
        ]
        with running_server("--workers", "1", *options) as address:
            yield address

    def problems(self) -> dict[str, list[Problem]]:
        """Return the problems, with the author's nodes, by what they are for."""
        return by_purpose(self.dataset(Nodes.AUTHOR))

    def model(self, number: int, noise: float = 0.0) -> Llama:
        """Return a warm-started model, weakened by noise of this scale."""
        model = Llama(seed=0)
        with np.load(self.warm_start(number)) as weights:
            state = {name: torch.from_numpy(weights[name]).float() for name in weights.files}
        model.load_state_dict(state)
        if noise:
            add_noise(model, noise, seed=number)
        return model

    def weak_start(self, number: int, share: float) -> tuple[float, float]:
        """Return the noise that weakens a warm start to a share, and the share that it leaves.

        The share is of responses to the selection problems that are right throughout.  It falls
        as the noise grows, so the search halves an interval.  `weak-starts.json` keeps the result.

        Raises:
            SystemExit: no noise leaves a share within a fifth of this one.
        """
        path = self.folder / "weak-starts.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        name = f"{share:g} of warm start {number}"
        if name not in found:
            found[name] = self._weaken(number, share)
            with atomic_file(path) as stream:
                stream.write((json.dumps(found, indent=1) + "\n").encode())
        noise, left = found[name]
        return noise, left

    def _weaken(self, number: int, share: float) -> tuple[float, float]:
        tokens, problems = Tokens(), self.problems()["selection"]
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            noise = (low + high) / 2
            model = self.model(number, noise)
            left = _right_throughout(model, tokens, problems, _WEAK_SAMPLES, seed=0)
            if abs(left - share) <= share / 5:
                return noise, round(left, 4)
            low, high = (noise, high) if left > share else (low, noise)
        raise SystemExit(
            f"no noise on warm start {number} leaves {share:.1%} of its responses right"
            f" throughout: {noise:.3f} leaves {left:.1%}"
        )


def by_purpose(dataset: Path) -> dict[str, list[Problem]]:
    """Return the problems of a dataset by what they are for, which their ids begin with."""
    found: dict[str, list[Problem]] = {}
    for problem in read_problems(dataset):
        found.setdefault(problem.problem_id.rpartition("-")[0], []).append(problem)
    return found


def prepare(inputs: Inputs, recipe: Recipe, say: Callable[[str], None]) -> None:
    """Make the inputs, unless they are there.

    Raises:
        SystemExit: the folder has the inputs of another recipe, or they were changed.
    """
    if inputs.facts.exists():
        facts = json.loads(inputs.facts.read_text())
        if facts["recipe"] != asdict(recipe):
            raise SystemExit(
                f"{inputs.folder} has the inputs of another recipe: use another folder"
            )
        if facts["digest"] != _digest(inputs.files()):
            raise SystemExit(f"{inputs.folder}: files are not those that {inputs.facts} names")
        return
    inputs.folder.mkdir(parents=True, exist_ok=True)
    tokens = Tokens()
    held_out = list(islice(draw_stories(HELD_OUT_SEED), recipe.held_out))
    longer = list(islice(draw_stories(LONGER_SEED, (LONGER_STAGES,)), recipe.longer))
    kept = {story.text for story in held_out + longer}
    selection = list(islice(draw_stories(SELECTION_SEED, avoid=kept), recipe.selection))
    kept |= {story.text for story in selection}
    pool = list(islice(draw_stories(TRAIN_SEED, avoid=kept), recipe.pool))
    kept |= {story.text for story in pool}

    starts: list[dict[str, Any]] = []
    to_look = [story.problem(f"selection-{n}", "test") for n, story in enumerate(selection)]
    models: list[Llama] = []
    writers: list[Writer] = []
    for number in range(NUM_WARM_STARTS):
        say(f"warm start {number}: {recipe.warm_steps} updates")
        model = Llama(seed=number)
        stories = draw_stories(WARM_SEED + number, WARM_STAGES, avoid=kept)
        look = _Look(model, tokens, to_look, recipe.start_at)
        updates = warm_up(
            model, tokens, stories, steps=recipe.warm_steps, seed=number, stop=look.enough
        )
        if recipe.start_at and updates == recipe.warm_steps:
            raise SystemExit(f"warm start {number} never was right in {recipe.start_at:.0%}")
        starts.append({"updates": updates, "right_throughout": look.seen})
        _save(model, inputs.warm_start(number))
        models.append(inputs.model(number))
        style = STYLES[number]
        if recipe.more_steps:
            say(f"... and {recipe.more_steps} more, of style {style}, to build nodes from")
            warm_up(model, tokens, stories, steps=recipe.more_steps, seed=number, styles=(style,))
            writers.append(partial(_sample, model, tokens))
        else:
            writers.append(partial(_right, pool, style))

    say("nodes, built of rollouts")
    pool_problems = [story.problem(f"pool-{n}", "train") for n, story in enumerate(pool)]
    built = _build(pool_problems, writers, recipe.built_from)
    enough = [n for n, problem in enumerate(pool_problems) if problem.problem_id in built]
    if len(enough) < recipe.train:
        raise SystemExit(
            f"nodes were built for {len(enough)} problems of {recipe.pool}, and"
            f" {recipe.train} are to be trained on: take a larger pool"
        )
    chosen = enough[: recipe.train]
    train = [pool[n].problem(f"train-{k}", "train") for k, n in enumerate(chosen)]
    train_built = [
        replace(built[f"pool-{n}"], problem_id=f"train-{k}", metadata={}, budget=None)
        for k, n in enumerate(chosen)
    ]
    others = [
        *(story.problem(f"held-out-{n}", "test") for n, story in enumerate(held_out)),
        *(story.problem(f"longer-{n}", "test") for n, story in enumerate(longer)),
        *(story.problem(f"selection-{n}", "test") for n, story in enumerate(selection)),
    ]

    say("nodes of the controls")
    written = [
        _sample(model, tokens, train, recipe.lots_from, 100 + number)
        for number, model in enumerate(models)
    ]
    texts = [[text for part in parts for text in part] for parts in zip(*written, strict=True)]
    datasets: dict[Nodes, Sequence[Problem]] = {
        Nodes.AUTHOR: train,
        Nodes.AUTHOR_SHUFFLED: shuffled(train, CONTROL_SEED),
        Nodes.AUTHOR_RANDOM: _by_lot(train, texts),
        Nodes.BUILT: [replace(problem, nodes=counted(problem)) for problem in train_built],
        Nodes.BUILT_SHUFFLED: shuffled(train_built, CONTROL_SEED),
        Nodes.BUILT_RANDOM: _by_lot(train_built, texts),
        Nodes.FORMAT: [formal(problem) for problem in train],
        Nodes.NONE: [replace(problem, nodes=()) for problem in train],
    }
    for nodes, problems in datasets.items():
        with open_writer(inputs.dataset(nodes)) as out:
            # Those to evaluate on have the author's nodes everywhere.
            for problem in [*problems, *others]:
                out.write(problem_to_row(problem))
    facts = {
        "recipe": asdict(recipe),
        "warm_starts": starts,
        "built_for": f"{len(enough)} of {recipe.pool} problems",
        "digest": _digest(inputs.files()),
    }
    # Last, because it says that the others are complete.
    with atomic_file(inputs.facts) as stream:
        stream.write((json.dumps(facts, indent=1) + "\n").encode())


def _save(model: Llama, path: Path) -> None:
    """Write the weights, rounded to half precision: the rounded ones are the warm start."""
    weights = {name: value.half().numpy() for name, value in model.state_dict().items()}
    with atomic_file(path) as stream:
        np.savez_compressed(stream, **weights)


def _right_throughout(
    model: Llama, tokens: Tokens, problems: Sequence[Problem], samples: int, seed: int
) -> float:
    """Return the share of responses with the right answer that reach every counted node."""
    sampled = _sample(model, tokens, problems, samples, seed)
    return fmean(
        text.endswith(f"Answer: {problem.ground_truth}") and all(_covers(problem)(text))
        for problem, texts in zip(problems, sampled, strict=True)
        for text in texts
    )


class _Look:
    """Looks now and then whether a model is as good as it shall be."""

    def __init__(
        self, model: Llama, tokens: Tokens, problems: Sequence[Problem], start_at: float
    ) -> None:
        self._share = partial(_right_throughout, model, tokens, problems, 1)
        self._start_at = start_at
        # By updates, the part of responses that is right throughout.
        self.seen: dict[int, float] = {}

    def enough(self, updates: int) -> bool:
        """Say whether the model is good enough after so many updates."""
        if not self._start_at or updates % _LOOK_EVERY:
            return False
        self.seen[updates] = round(self._share(updates), 4)
        return self.seen[updates] >= self._start_at


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sample(
    model: Llama, tokens: Tokens, problems: Sequence[Problem], samples: int, seed: int
) -> list[list[str]]:
    """Return the texts of `samples` responses to each problem."""
    generator = torch.Generator().manual_seed(seed)
    texts: list[list[str]] = []
    for start in range(0, len(problems), 32):
        part = problems[start : start + 32]
        prompts = [tokens.prompt(problem.problem) for problem in part]
        found = [
            tokens.decode(response[:-1] if response[-1] == tokens.ids[END] else response)
            for response in generate(model, tokens, prompts, samples, generator)
        ]
        texts += [found[n : n + samples] for n in range(0, len(found), samples)]
    return texts


def _right(
    stories: Sequence[Story], style: str, problems: Sequence[Problem], samples: int, seed: int
) -> list[list[str]]:
    """Return the texts of `samples` right solutions to each problem, in one style."""
    rng = random.Random(seed)
    assert len(stories) == len(problems)
    return [[write(story.operations(rng), style) for _ in range(samples)] for story in stories]


def _build(
    problems: Sequence[Problem], writers: Sequence[Writer], samples: int
) -> dict[str, Problem]:
    """Return the problems for which `consensusbench build` finds two nodes that count, by id."""
    with TemporaryDirectory() as folder:
        listed, rollouts = Path(folder) / "problems.jsonl", Path(folder) / "rollouts.jsonl"
        with open_writer(listed) as out:
            for problem in problems:
                out.write(problem_to_row(replace(problem, nodes=())))
        with open_writer(rollouts) as out:
            for row in _rollouts(problems, writers, samples):
                out.write(row)
        made = Path(folder) / "built.jsonl"
        build(
            BuildJob(
                (rollouts,),
                OutputPaths(made),
                RulesExtractor(),
                PaperRefiner(),
                problems=listed,
                # All that are right, not the paper's five: there are two ways to most stages.
                selection=SelectionSettings(rollouts_per_problem=None),
            )
        )
        return {p.problem_id: p for p in read_problems(made) if len(counted(p)) >= 2}


def _rollouts(
    problems: Sequence[Problem], writers: Sequence[Writer], samples: int
) -> Iterator[dict[str, Any]]:
    for number, texts_of in enumerate(writers):
        written = texts_of(problems, samples, 200 + number)
        for problem, texts in zip(problems, written, strict=True):
            for sample, text in enumerate(texts):
                yield {
                    "problem_id": problem.problem_id,
                    "rollout_id": f"{problem.problem_id}-{number}-{sample}",
                    "model": f"model-{number}",
                    "response": text,
                }


def _covers(problem: Problem) -> Callable[[str], list[bool]]:
    nodes = [node.expressions for node in counted(problem)]
    return Matcher(nodes, expand=True, code=COUNTED["code"]).match


def _by_lot(problems: Sequence[Problem], texts: Sequence[Sequence[str]]) -> list[Problem]:
    return [
        by_lot(problem, written, _covers(problem), CONTROL_SEED)
        for problem, written in zip(problems, texts, strict=True)
    ]
