"""The starts: warm-ups that are stopped when so many of their responses are right throughout.

`python -m examples.study starts` makes and measures them, once; the files are committed, because
sums in floating point differ from machine to machine.  A start is chosen on some problems and
measured on others, so that the measured share is not too good.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from arithmetic_grpo.model import warm_up

from benchmarks.markdown import table
from consensuspr.client import LocalClient
from consensuspr.data import Problem, atomic_file

from .grpo import answer
from .model import TOKENS, StudyModel, load_start, model_of, rounded, sample, save_start
from .nodes import CONTROL_SEED, Nodes, Problems, RandomNodes, random_nodes
from .plan import LEVELS, RANGES, starts
from .task import MAX_RESPONSE_TOKENS, STYLES, WARM_STAGES, Story, draw_stories

Say = Callable[[str], object]
Stored = dict[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """How starts are made.

    Attributes:
        seeds: of the warm-ups a to f.
        updates: that the learning rate's schedule of each warm-up is made for.
        batch: solutions of an update.
        kept_every: updates between two models from which starts are chosen.
        looked_every: updates between two rough looks, of one response to a problem.
        looked_from: updates before the first of them; none is right so early.
        samples: responses to a problem when a start is chosen or measured.
        random_from: responses to a problem, of all starts of a level, for random nodes.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    updates: tuple[int, ...] = (900, 750, 900, 900, 6000, 6000)
    batch: int = 64
    kept_every: int = 5
    looked_every: int = 40
    looked_from: int = 300
    samples: int = 4
    random_from: int = 64


@dataclass(frozen=True)
class Inputs:
    """The files that runs begin from."""

    folder: Path

    def start(self, name: str) -> Path:
        return self.folder / f"start-{name}.npz"

    def of_random(self, level: str) -> Path:
        return self.folder / f"random-{level}.json.gz"

    @property
    def measured(self) -> Path:
        """What is known of the starts: a JSON object by name."""
        return self.folder / "starts.json"

    def model(self, name: str) -> StudyModel:
        return load_start(self.start(name))

    def random_nodes(self, level: str) -> RandomNodes:
        found: RandomNodes = json.loads(gzip.decompress(self.of_random(level).read_bytes()))
        return found

    def digest(self, name: str) -> str:
        """Return a digest of the start and of its level's random nodes.

        Raises:
            SystemExit: a file is missing.
        """
        files = (self.start(name), self.of_random(name.partition("-")[0]))
        if missing := [path for path in files if not path.exists()]:
            raise SystemExit(f"{missing[0]} is missing: run `python -m examples.study starts`")
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.measured.read_text())
        return found


def prepare(inputs: Inputs, problems: Problems, recipe: Recipe, say: Say) -> None:
    """Make the starts and random nodes that are missing, and measure the starts."""
    inputs.folder.mkdir(parents=True, exist_ok=True)
    facts = inputs.facts() if inputs.measured.exists() else {}
    with problems.scoring([Nodes.AUTHOR], {}) as client:
        for letter, seed, updates in zip("abcdef", recipe.seeds, recipe.updates, strict=True):
            levels = [level for level, letters in LEVELS.items() if letter in letters]
            names = [f"{level}-{letter}" for level in levels]
            if all(name in facts for name in names):
                continue
            found = _warm_up(seed, updates, levels, problems, recipe, client, say)
            for level, name in zip(levels, names, strict=True):
                at, chosen_at, stored = found[level]
                save_start(stored, inputs.start(name))
                measured = _measured(stored, problems.measuring, recipe, client, seed=1000)
                facts[name] = {
                    "warm_up_seed": seed, "schedule": updates, "updates": at,
                    "chosen_at": round(chosen_at, 5), **measured,
                }  # fmt: skip
                low, high = RANGES[level]
                inside = low <= measured["throughout"] <= high
                say(f"start {name}: {at} updates, {measured['throughout']:.2%} right throughout"
                    f"{'' if inside else ', out of its range'}")  # fmt: skip
            _write_json(inputs.measured, facts)
    for level in LEVELS:
        if not inputs.of_random(level).exists():
            say(f"random nodes of level {level}")
            _write_random(inputs, level, problems.train, recipe)


def _warm_up(
    seed: int,
    updates: int,
    levels: Sequence[str],
    problems: Problems,
    recipe: Recipe,
    client: LocalClient,
    say: Say,
) -> dict[str, tuple[int, float, Stored]]:
    """Return of each level the updates, the share that was seen, and the weights."""
    highest = max(float(level) for level in levels) / 100
    kept: dict[int, Stored] = {}
    rough: dict[int, float] = {}
    model = StudyModel(seed=seed)

    def look(done: int) -> bool:
        if done < recipe.looked_from or done % recipe.kept_every:
            return False
        kept[done] = rounded(model)
        if done % recipe.looked_every == 0:
            generator = torch.Generator().manual_seed(done)
            seen = answer(model, client, problems.starting, 1, generator, MAX_RESPONSE_TOKENS)
            rough[done] = seen["throughout"]
        # Well above, so that the level lies between two models.
        return done % recipe.looked_every == 0 and rough[done] >= 1.15 * highest

    stories = draw_stories(500 + seed, WARM_STAGES, problems.texts)
    pairs = _solutions(stories, random.Random(seed))
    done = warm_up(model, TOKENS, pairs, steps=updates, batch=recipe.batch, report=look)
    say(f"warm-up {seed}: {done} updates, {rough[max(rough)]:.1%} right throughout")
    exact: dict[int, float] = {}

    def share(at: int) -> float:
        if at not in exact:
            seen = _measured(kept[at], problems.starting, recipe, client, seed=2000)
            exact[at] = seen["throughout"]
        return exact[at]

    found = {}
    for level in levels:
        target = float(level) / 100
        # From the last rough look far below to the first far above.
        high = min((at for at, seen in rough.items() if seen > 3 * target), default=done)
        below = [at for at, seen in rough.items() if seen < target / 3 and at < high]
        low = max(below, default=0)
        at = _closest([at for at in sorted(kept) if low <= at <= high], share, target)
        found[level] = (at, share(at), kept[at])
    return found


def _closest(places: Sequence[int], share: Callable[[int], float], target: float) -> int:
    """Return the place whose share is nearest to a target in ratio, by halving the interval.

    Shares rise with the places, but for chance and for the training's own ups and downs.
    """
    low, high, looked = 0, len(places) - 1, []
    while low <= high:
        middle = (low + high) // 2
        looked.append(places[middle])
        if share(places[middle]) < target:
            low = middle + 1
        else:
            high = middle - 1
    # Half of a response where none is right.
    return min(looked, key=lambda at: abs(math.log(max(share(at), 2e-4) / target)))


def _solutions(stories: Iterator[Story], rng: random.Random) -> Iterator[tuple[str, str]]:
    for story in stories:
        yield story.text, story.solution(rng)


def _measured(
    stored: Stored, problems: Sequence[Problem], recipe: Recipe, client: LocalClient, seed: int
) -> dict[str, float]:
    """Return the figures of sampled responses to problems."""
    model = model_of(stored)
    generator = torch.Generator().manual_seed(seed)
    seen = answer(model, client, problems, recipe.samples, generator, MAX_RESPONSE_TOKENS)
    names = ("throughout", "acc", "ncr", "unanswered", "unended", "stated", *STYLES)
    return {"responses": len(problems) * recipe.samples, **{n: round(seen[n], 5) for n in names}}


def _write_random(inputs: Inputs, level: str, problems: Sequence[Problem], recipe: Recipe) -> None:
    """Make the random nodes of a level from responses of all its starts."""
    names = starts(level)
    texts: list[list[str]] = [[] for _ in problems]
    each = recipe.random_from // len(names)
    for number, name in enumerate(names):
        generator = torch.Generator().manual_seed(3000 + number)
        responses = sample(inputs.model(name), problems, each, generator)
        for place, response in enumerate(responses):
            texts[place // each].append(TOKENS.text(response))
    found = {
        problem.problem_id: random_nodes(problem, of_problem, CONTROL_SEED)
        for problem, of_problem in zip(problems, texts, strict=True)
    }
    with atomic_file(inputs.of_random(level)) as stream:
        stream.write(gzip.compress(json.dumps(found).encode(), mtime=0))


def _write_json(path: Path, value: Any) -> None:
    with atomic_file(path) as stream:
        stream.write((json.dumps(value, indent=1) + "\n").encode())


def starts_table(inputs: Inputs) -> str:
    """Return the measured starts, as Markdown."""
    facts = inputs.facts()
    head = ("start", "warm-up", "updates", "responses", "right throughout", "Acc", "NCR",
            "without an answer", "as code")  # fmt: skip
    body = []
    for name in (name for name in starts(*LEVELS) if name in facts):
        fact = facts[name]
        of = f"seed {fact['warm_up_seed']}, schedule {fact['schedule']}"
        shares = (f"{fact[figure]:.1%}" for figure in ("acc", "ncr", "unanswered", "code"))
        right = f"{fact['throughout']:.2%}"
        body.append((name, of, str(fact["updates"]), f"{fact['responses']:,}", right, *shares))
    return table(head, body, words=2)
