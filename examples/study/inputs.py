"""The inputs of all runs: problems, datasets of nodes, and warm-started models.

Made once and committed, since runs are comparable only if they begin alike, and floating-point
sums differ from machine to machine.  `facts.json` has their digest.

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
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from arithmetic_grpo.model import Llama, Tokens, generate, warm_up
from arithmetic_grpo.training import running_server

from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.core import Matcher
from consensuspr.data import Problem, atomic_file, open_writer, problem_to_row, read_problems

from .arms import COUNTED, NUM_WARM_STARTS, Nodes, counted, formal, random_nodes, shuffled
from .task import (
    LONGER_STAGES,
    MAX_RESPONSE_TOKENS,
    STAGES,
    STYLES,
    WARM_STAGES,
    Story,
    draw_stories,
    vocabulary,
    write,
)

TOKENS = Tokens(vocabulary())
# Seeds of the streams of problems, and of the controls.
HELD_OUT_SEED, LONGER_SEED, SELECTION_SEED, TRAIN_SEED, WARM_SEED = 10, 20, 30, 40, 50
CONTROL_SEED = 60

WARM_BATCH = 64
# Updates between two evaluations of a warm start.
_LOOK_EVERY = 20
# Of the search for a weak start: samples a problem, and steps.  1 % of 4,096 is 41, give or take 6.
_WEAK_SAMPLES, _HALVINGS = 16, 10


@dataclass(frozen=True)
class Recipe:
    """What the inputs are made from.

    Attributes:
        train, pool: problems to train on, and those from which they are taken.
        held_out, longer: problems to evaluate on, of as many stages and of one more.
        selection: problems on which learning rates are chosen.
        warm_steps: updates of a warm start that its schedule is made for, of 64 solutions each.
        start_at: a warm start ends as soon as this share of its responses is right throughout;
            0: it makes all of its updates.
        more_steps: further updates of the models whose rollouts nodes are built from, each on
            solutions of one style; 0: nodes are built from right solutions, for quick trials.
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
    """The inputs in their folder."""

    folder: Path

    @property
    def facts(self) -> Path:
        return self.folder / "facts.json"

    def dataset(self, nodes: Nodes) -> Path:
        return self.folder / f"{nodes}.jsonl.gz"

    def warm_start(self, number: int) -> Path:
        return self.folder / f"warm-start-{number}.npz"

    def digest(self) -> str:
        """Return the digest of all files in `facts.json`."""
        return str(json.loads(self.facts.read_text())["digest"])

    def computed_digest(self) -> str:
        """Return the digest of all files as they are."""
        files = [*map(self.dataset, Nodes), *map(self.warm_start, range(NUM_WARM_STARTS))]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve all datasets with `consensuspr serve`, and yield its address."""
        options = ["--workers", "1"]
        for nodes in Nodes:
            options += ["--dataset", f"{nodes}={self.dataset(nodes).absolute()}"]
        with running_server(*options) as address:
            yield address

    def problems(self) -> dict[str, list[Problem]]:
        """Return the problems, with the author's nodes, by purpose."""
        return by_purpose(self.dataset(Nodes.AUTHOR))

    def model(self, number: int, noise: float = 0.0) -> Llama:
        """Return a warm-started model, weakened by noise of this scale."""
        model = Llama(len(TOKENS.words), seed=0)
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
        path, name = self.folder / "weak-starts.json", f"{share:g} of warm start {number}"
        found = json.loads(path.read_text()) if path.exists() else {}
        if name not in found:
            found[name] = self._weaken(number, share)
            _write_json(path, found)
        noise, left = found[name]
        return noise, left

    def _weaken(self, number: int, share: float) -> tuple[float, float]:
        problems = self.problems()["selection"]
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            noise = (low + high) / 2
            left = _right_throughout(self.model(number, noise), problems, _WEAK_SAMPLES)
            if abs(left - share) <= share / 5:
                return noise, round(left, 4)
            low, high = (noise, high) if left > share else (low, noise)
        raise SystemExit(
            f"no noise on warm start {number} leaves {share:.1%} of its responses right"
            f" throughout: {noise:.3f} leaves {left:.1%}"
        )


def by_purpose(dataset: Path) -> dict[str, list[Problem]]:
    """Return the problems of a dataset by purpose, the first part of their ids."""
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
        if json.loads(inputs.facts.read_text())["recipe"] != asdict(recipe):
            raise SystemExit(f"{inputs.folder} has inputs of another recipe: use another folder")
        if inputs.digest() != inputs.computed_digest():
            raise SystemExit(f"{inputs.folder}: files differ from those of {inputs.facts}")
        return
    inputs.folder.mkdir(parents=True, exist_ok=True)
    avoid: set[str] = set()

    def drawn(seed: int, count: int, stages: int = STAGES) -> list[Story]:
        found = list(islice(draw_stories(seed, (stages,), avoid), count))
        avoid.update(story.text for story in found)
        return found

    held_out = drawn(HELD_OUT_SEED, recipe.held_out)
    longer = drawn(LONGER_SEED, recipe.longer, LONGER_STAGES)
    selection = _problems("selection", drawn(SELECTION_SEED, recipe.selection))
    pool = drawn(TRAIN_SEED, recipe.pool)

    starts: list[dict[str, Any]] = []
    models: list[Llama] = []
    rollouts: list[dict[str, Any]] = []
    pool_problems = _problems("pool", pool, "train")
    for number, style in enumerate(STYLES):
        say(f"warm start {number}: {recipe.warm_steps} updates")
        model = Llama(len(TOKENS.words), seed=number)
        stories = draw_stories(WARM_SEED + number, WARM_STAGES, avoid)
        starts.append(_warm_start(model, stories, number, recipe, selection))
        # The weights rounded to half precision are the warm start.
        weights = {name: value.half().numpy() for name, value in model.state_dict().items()}
        with atomic_file(inputs.warm_start(number)) as stream:
            np.savez_compressed(stream, **weights)
        models.append(inputs.model(number))
        if recipe.more_steps:
            say(f"... and {recipe.more_steps} more, of style {style}, to build nodes from")
            of_style = solutions(stories, random.Random(number), (style,))
            warm_up(model, TOKENS, of_style, steps=recipe.more_steps, batch=WARM_BATCH)
            written = sample(model, pool_problems, recipe.built_from, 200 + number)
        else:
            rng = random.Random(200 + number)
            written = [
                [write(story.operations(rng), style) for _ in range(recipe.built_from)]
                for story in pool
            ]
        rollouts += [
            {
                "problem_id": problem.problem_id,
                "rollout_id": f"{problem.problem_id}-{number}-{place}",
                "model": f"model-{number}",
                "response": text,
            }
            for problem, texts in zip(pool_problems, written, strict=True)
            for place, text in enumerate(texts)
        ]

    say("nodes, built of rollouts")
    built = _build(pool_problems, rollouts)
    places = [n for n, problem in enumerate(pool_problems) if problem.problem_id in built]
    if len(places) < recipe.train:
        raise SystemExit(
            f"nodes were built for {len(places)} problems of {recipe.pool}, and"
            f" {recipe.train} are to be trained on: take a larger pool"
        )
    train = _problems("train", [pool[place] for place in places[: recipe.train]], "train")
    train_built = [
        replace(problem, nodes=counted(built[f"pool-{place}"]))
        for problem, place in zip(train, places, strict=False)
    ]

    say("nodes of the controls")
    written = [
        [text for texts in of_problem for text in texts]
        for of_problem in zip(
            *(sample(model, train, recipe.lots_from, 100 + n) for n, model in enumerate(models)),
            strict=True,
        )
    ]
    datasets: dict[Nodes, list[Problem]] = {
        Nodes.AUTHOR: train,
        Nodes.AUTHOR_SHUFFLED: shuffled(train, CONTROL_SEED),
        Nodes.AUTHOR_RANDOM: _random(train, written),
        Nodes.BUILT: train_built,
        Nodes.BUILT_SHUFFLED: shuffled(train_built, CONTROL_SEED),
        Nodes.BUILT_RANDOM: _random(train_built, written),
        Nodes.FORMAT: [formal(problem) for problem in train],
        Nodes.NONE: [replace(problem, nodes=()) for problem in train],
    }
    # Problems to evaluate on have the author's nodes in every dataset.
    evaluated = [*_problems("held-out", held_out), *_problems("longer", longer), *selection]
    for nodes, problems in datasets.items():
        write_problems(inputs.dataset(nodes), [*problems, *evaluated])
    facts = {
        "recipe": asdict(recipe),
        "warm_starts": starts,
        "built_for": f"{len(places)} of {recipe.pool} problems",
        "digest": inputs.computed_digest(),
    }
    # Last, as a mark that the others are complete.
    _write_json(inputs.facts, facts)


def _write_json(path: Path, value: Any) -> None:
    with atomic_file(path) as stream:
        stream.write((json.dumps(value, indent=1) + "\n").encode())


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Write a dataset."""
    with open_writer(path) as out:
        for problem in problems:
            out.write(problem_to_row(problem))


def _problems(purpose: str, stories: Sequence[Story], split: str = "test") -> list[Problem]:
    return [story.problem(f"{purpose}-{n}", split) for n, story in enumerate(stories)]


def solutions(
    stories: Iterator[Story], rng: random.Random, styles: Sequence[str] = STYLES
) -> Iterator[tuple[str, str]]:
    """Yield problems with right solutions in randomly drawn ways and styles."""
    for story in stories:
        yield story.text, write(story.operations(rng), rng.choice(styles))


def _warm_start(
    model: Llama, stories: Iterator[Story], number: int, recipe: Recipe, selection: list[Problem]
) -> dict[str, Any]:
    """Train a model until enough of its responses are right; return updates and shares."""
    shares: dict[int, float] = {}

    def is_enough(updates: int) -> bool:
        if not recipe.start_at or updates % _LOOK_EVERY:
            return False
        shares[updates] = round(_right_throughout(model, selection, 1), 4)
        return shares[updates] >= recipe.start_at

    of_all_styles = solutions(stories, random.Random(number))
    updates = warm_up(
        model, TOKENS, of_all_styles, steps=recipe.warm_steps, batch=WARM_BATCH, report=is_enough
    )
    if recipe.start_at and updates == recipe.warm_steps:
        raise SystemExit(f"warm start {number} never was right in {recipe.start_at:.0%}")
    return {"updates": updates, "right_throughout": shares}


def _right_throughout(model: Llama, problems: Sequence[Problem], samples: int) -> float:
    """Return the share of responses with the right answer that reach every counted node."""
    return fmean(
        text.endswith(f"Answer: {problem.ground_truth}") and all(covers(problem)(text))
        for problem, texts in zip(problems, sample(model, problems, samples, 0), strict=True)
        for text in texts
    )


def covers(problem: Problem) -> Callable[[str], list[bool]]:
    """Return a function: text to a flag for each counted node."""
    nodes = [node.expressions for node in counted(problem)]
    return Matcher(nodes, expand=True, code=COUNTED["code"]).match


def sample(model: Llama, problems: Sequence[Problem], samples: int, seed: int) -> list[list[str]]:
    """Return the texts of `samples` responses to each problem."""
    generator = torch.Generator().manual_seed(seed)
    texts: list[list[str]] = []
    for start in range(0, len(problems), 32):
        prompts = [TOKENS.prompt(problem.problem) for problem in problems[start : start + 32]]
        responses = generate(model, TOKENS, prompts, samples, generator, MAX_RESPONSE_TOKENS)
        of_part = list(map(TOKENS.text, responses))
        texts += [of_part[n : n + samples] for n in range(0, len(of_part), samples)]
    return texts


@torch.no_grad()  # type: ignore[untyped-decorator]
def add_noise(model: Llama, scale: float, seed: int) -> None:
    """Add normal noise to every matrix, `scale` times the standard deviation of its weights.

    The noise depends on the seed alone: a larger scale gives the same noise, only stronger.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(scale * parameter.std() * noise)


def _build(problems: Sequence[Problem], rollouts: Sequence[dict[str, Any]]) -> dict[str, Problem]:
    """Return the problems for which `consensusbench build` finds two nodes that count, by id."""
    with TemporaryDirectory() as folder:
        listed, rows, made = (
            Path(folder) / f"{name}.jsonl" for name in ("problems", "rows", "made")
        )
        write_problems(listed, [replace(problem, nodes=()) for problem in problems])
        with open_writer(rows) as out:
            for rollout in rollouts:
                out.write(rollout)
        build(
            BuildJob(
                (rows,),
                OutputPaths(made),
                RulesExtractor(),
                PaperRefiner(),
                problems=listed,
                # All right ones, not the paper's five: there are two ways to most stages.
                selection=SelectionSettings(rollouts_per_problem=256),
            )
        )
        return {p.problem_id: p for p in read_problems(made) if len(counted(p)) >= 2}


def _random(problems: Sequence[Problem], texts: Sequence[Sequence[str]]) -> list[Problem]:
    return [
        random_nodes(problem, written, covers(problem), CONTROL_SEED)
        for problem, written in zip(problems, texts, strict=True)
    ]
