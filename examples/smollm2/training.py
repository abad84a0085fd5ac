"""Fine-tuning a start, and GRPO from it with two rewards; the loop's functions are the study's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from arithmetic_grpo.model import response_log_probs

from consensuspr.client import LocalClient
from consensuspr.data import Problem
from consensuspr.scoring.types import Score
from examples.study.grpo import EVALUATED, Policy, group_advantages, problem_order, score
from examples.study.nodes import Nodes
from examples.study.plan import Arm

from .model import Sampler, Vocabulary
from .problems import Example

Figures = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Settings of a run; lengths are in tokens."""

    longest: int = 140  # of a prompt; longer problems are left out
    max_tokens: int = 200  # of a response
    rows: int = 256  # responses that are sampled at a time
    micro_batch: int = 64  # rows of a forward and backward pass
    tuned: int = 2400  # problems to fine-tune on, and for nothing else
    tuning_rate: float = 1e-4
    tuning_batch: int = 32
    tuning_updates: int = 300  # at most
    look_every: int = 25  # updates between two looks at sampled responses
    target: float = 0.03  # Acc of a look at which the fine-tuning ends
    steps: int = 80
    problems: int = 32  # of a step
    group: int = 8  # responses to a problem
    learning_rate: float = 2e-5  # of GRPO
    curve_every: int = 20  # steps between two points of the curve; the first is before step 1
    curve_problems: int = 512  # held-out problems of a point
    final_problems: int = 1024  # all held-out problems


SMOKE = Settings(
    longest=400, max_tokens=24, rows=8, micro_batch=4, tuned=8, tuning_batch=4, tuning_updates=2,
    look_every=1, steps=2, problems=2, group=2, curve_every=1, curve_problems=4, final_problems=8,
)  # fmt: skip


@dataclass(frozen=True)
class Problems:
    """Examples by purpose."""

    tune: list[Example]
    train: list[Problem]
    held_out: list[Problem]

    @classmethod
    def split(cls, examples: Sequence[Example], tokens: Vocabulary, settings: Settings) -> Problems:
        """Split examples: the first to fine-tune on, the last held out, the others to train on."""
        short = [e for e in examples if len(tokens.prompt(e.problem.problem)) <= settings.longest]
        start, end = settings.tuned, len(short) - settings.final_problems
        if end <= start:
            raise ValueError(f"{len(short)} problems are too few: {start} are for fine-tuning")
        problems = [example.problem for example in short]
        return cls(short[:start], problems[start:end], problems[end:])


@dataclass
class Actor:
    """Samples responses and scores them."""

    sampler: Sampler
    tokens: Vocabulary
    client: LocalClient

    def respond(
        self, problems: Sequence[Problem], arm: Arm, generator: torch.Generator | None
    ) -> tuple[list[list[int]], list[Score], Figures]:
        """Return a response to each problem, as token ids, with its score and their figures."""
        prompts = [self.tokens.prompt(problem.problem) for problem in problems]
        responses = self.sampler(prompts, generator)
        texts = list(map(self.tokens.text, responses))
        scores = score(self.client, problems, texts, arm.reward, Nodes.AUTHOR)
        lengths = list(map(len, responses))
        figures = {
            "acc": fmean(s.acc or 0.0 for s in scores),
            "ncr": fmean(s.ncr or 0.0 for s in scores),
            # Right, with every node that the reward counts.
            "throughout": fmean(s.acc == 1 and s.ncr_raw == 1 for s in scores),
            "tokens": fmean(lengths),
            "unended": fmean(length >= self.sampler.max_tokens for length in lengths),
            "unanswered": fmean(not s.answer for s in scores),
        }
        return responses, scores, figures

    def evaluate(self, problems: Sequence[Problem], generator: torch.Generator | None) -> Figures:
        """Return the figures of one response to each problem; all nodes count."""
        return self.respond(problems, Arm(EVALUATED), generator)[2]


def fine_tune(actor: Actor, problems: Problems, settings: Settings) -> Iterator[Figures]:
    """Train on solutions until the model is right often enough; yield the figures of each look."""
    model = actor.sampler.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.tuning_rate, weight_decay=0.01)
    order = problem_order(len(problems.tune), seed=0)
    generator = torch.Generator().manual_seed(0)
    # Not the held-out ones.
    shown = problems.train[: settings.curve_problems]
    for update in range(1, settings.tuning_updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.tuning_rate * min(1.0, update / 20)
        batch = [problems.tune[next(order)] for _ in range(settings.tuning_batch)]
        prompts = [actor.tokens.prompt(example.problem.problem) for example in batch]
        responses = [actor.tokens.response(example.solution) for example in batch]
        loss = -response_log_probs(model, prompts, responses).sum() / sum(map(len, responses))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % settings.look_every == 0:
            figures = actor.evaluate(shown, generator)
            yield {"update": update, "loss": loss.item(), **figures}
            if figures["acc"] >= settings.target:
                return


def train(
    actor: Actor, arm: Arm, problems: Problems, settings: Settings, seed: int
) -> Iterator[tuple[str, Figures]]:
    """Train the actor's model by GRPO.

    Yields:
        The kind of figures and the figures: of each step ``train``, of each point ``curve``, and of
        the end ``final``.
    """
    sampler = actor.sampler
    policy = Policy(
        sampler.model, settings.learning_rate, seed, sampler.max_tokens, settings.micro_batch
    )
    order = problem_order(len(problems.train), seed)

    def point(step: int, held_out: Sequence[Problem]) -> Figures:
        greedy = actor.evaluate(held_out, None)
        named = {"greedy": "acc", "greedy_throughout": "throughout", "greedy_ncr": "ncr"}
        return {"step": step, **{name: greedy[figure] for name, figure in named.items()}}

    yield "curve", point(0, problems.held_out[: settings.curve_problems])
    for step in range(1, settings.steps + 1):
        began = time.monotonic()
        batch = [problems.train[next(order)] for _ in range(settings.problems)]
        each = [problem for problem in batch for _ in range(settings.group)]
        responses, scores, figures = actor.respond(each, arm, policy.generator)
        rewards = [s.reward or 0.0 for s in scores]
        advantages = group_advantages(rewards, settings.group, arm.divided)
        policy.update([actor.tokens.prompt(p.problem) for p in each], responses, advantages)
        spread = fmean(bool(part.any()) for part in advantages.view(-1, settings.group))
        row = {"reward": fmean(rewards), "spread": spread, **figures}
        yield "train", {"step": step, **row, "seconds": time.monotonic() - began}
        if step % settings.curve_every == 0:
            yield "curve", point(step, problems.held_out[: settings.curve_problems])
    sampled = actor.evaluate(problems.held_out, policy.generator)
    yield "final", {**point(settings.steps, problems.held_out), **sampled}
