"""The training loop: GRPO as verl does it by default, on one thread.

A step samples a group of responses to each of some problems, scores them, and makes one update:
advantages are rewards less their group's mean, over its standard deviation; the loss is the mean
over all tokens of the batch; no KL term.  With one update a batch, the ratio to the policy that
sampled is 1, and clipping never acts.  `tests/examples/test_study.py` compares advantages, loss and
gradient with verl's own functions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from arithmetic_grpo.model import Llama, response_log_probs
from torch import Tensor

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.data import Problem
from consensuspr.scoring.types import Score, Status

from .model import TOKENS, sample
from .nodes import Nodes
from .plan import Arm, Settings
from .task import STAGES, STYLES, equations_in, is_true, style_of

# As verl's compute_grpo_outcome_advantage.
_EPSILON = 1e-6
# Rows of a forward and backward pass, which fit a core's cache; the gradient is the batch's.
_MICRO_BATCH = 32
ANSWER_RULE = "dapo"
# Of every evaluation: all nodes count, those of the answer too, and no text loses its NCR.
EVALUATED = RewardSpec.outcome(final_nodes=True, code="written", unanswered="ncr", guard=False)


def group_advantages(rewards: Sequence[float], size: int, divided: bool = True) -> Tensor:
    """Return the (n,) advantages of rewards whose groups, of `size` each, lie side by side.

    In double precision up to here: in single, equal rewards can have a spread that is nothing but
    rounding, and advantages of a hundredth.
    """
    groups = torch.tensor(rewards, dtype=torch.float64).view(-1, size)
    advantages = groups - groups.mean(dim=1, keepdim=True)
    if divided:
        advantages = advantages / (groups.std(dim=1, keepdim=True) + _EPSILON)
    return advantages.flatten().float()


def permuted_rewards(
    scores: Sequence[Score], reward: RewardSpec, size: int, rng: random.Random
) -> list[float]:
    """Return the rewards if the NCRs of each group, of `size`, are dealt out among its responses.

    What a response adds in expectation is its group's mean, so that NCR says nothing of it.
    """
    dealt: list[float] = []
    for start in range(0, len(scores), size):
        dealt += rng.sample([_known(s.ncr) for s in scores[start : start + size]], size)
    acc = [_known(s.acc) for s in scores]
    return [float(value) for value in reward.compute(acc, dealt)]


def policy_loss(log_probs: Tensor, advantages: Tensor, num_tokens: int) -> Tensor:
    """Return the loss of some responses of a batch, whose tokens are `num_tokens` in all.

    Args:
        log_probs: (n, length) of the tokens, 0 behind a response's end.
        advantages: (n, length) of the tokens, 0 behind a response's end.
        num_tokens: of the whole batch, so that the losses of its parts add up to its mean.
    """
    ratio = (log_probs - log_probs.detach()).exp()
    return -(ratio * advantages).sum() / num_tokens


@dataclass
class Policy:
    """A model with its sampling and its updates; `micro_batch` rows of a batch at a time."""

    model: Llama
    learning_rate: float
    seed: int
    max_tokens: int
    micro_batch: int = _MICRO_BATCH
    generator: torch.Generator = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.learning_rate, weight_decay=0.01
        )
        # A step without gradients still moves by momentum.
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def update(
        self, prompts: list[list[int]], responses: list[list[int]], advantages: Tensor
    ) -> None:
        """Make one step on a batch; advantages are (n,)."""
        num_tokens = sum(map(len, responses))
        self.optimizer.zero_grad(set_to_none=False)
        # Rows of like length together: less padding.
        order = sorted(range(len(responses)), key=lambda row: len(responses[row]))
        for start in range(0, len(order), self.micro_batch):
            # Without advantages there is no gradient.
            rows = [row for row in order[start : start + self.micro_batch] if advantages[row]]
            if not rows:
                continue
            log_probs = response_log_probs(
                self.model, [prompts[row] for row in rows], [responses[row] for row in rows]
            )
            policy_loss(log_probs, advantages[rows, None], num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def score(
    client: LocalClient,
    problems: Iterable[Problem],
    texts: Sequence[str],
    reward: RewardSpec,
    nodes: Nodes,
    epoch: int = 0,
) -> list[Score]:
    """Return the scores of responses; one problem for each text.

    Raises:
        RuntimeError: a response has no score.
    """
    rollouts = [Rollout(p.problem_id, text) for p, text in zip(problems, texts, strict=True)]
    scores = client.score(
        rollouts, reward=reward, epoch=epoch, dataset=str(nodes), answer_rule=ANSWER_RULE
    )
    for rollout, given in zip(rollouts, scores, strict=True):
        if given.status is not Status.OK:
            raise RuntimeError(f"{rollout.problem_id}: {given.status} {given.message}")
    return list(scores)


def figures(
    texts: Sequence[str], lengths: Sequence[int], scores: Sequence[Score], max_tokens: int
) -> dict[str, float]:
    """Return the figures of some responses, as means; `throughout` is right if all nodes count."""
    equations = [equations_in(text) for text in texts]
    stated = sum(map(len, equations))
    styles = Counter(map(style_of, texts))
    channels = Counter(channel for s in scores for channel in s.channels or () if channel)
    right = [
        s.acc == 1 and s.ncr_raw == 1 and all(map(is_true, stated_here))
        for s, stated_here in zip(scores, equations, strict=True)
    ]
    return {
        "acc": fmean(s.acc or 0.0 for s in scores),
        # Right in the answer and in every step.
        "throughout": fmean(right),
        "ncr": fmean(s.ncr or 0.0 for s in scores),
        "guard": fmean(1.0 if s.guard is None else s.guard for s in scores),
        # Equations for each one that a solution needs.
        "stated": stated / len(texts) / (2 * STAGES),
        "duplicates": sum(len(e) - len(set(e)) for e in equations) / max(1, stated),
        "tokens": fmean(lengths),
        "unended": fmean(length >= max_tokens for length in lengths),
        "unanswered": fmean(not s.answer for s in scores),
        # Share of the nodes that are reached.
        "by_code": channels["code"] / max(1, channels.total()),
        **{style: styles[style] / len(texts) for style in STYLES},
    }


def answer(
    model: Llama,
    client: LocalClient,
    problems: Sequence[Problem],
    samples: int,
    generator: torch.Generator | None,
    max_tokens: int,
) -> dict[str, float]:
    """Return the figures of sampled responses, or without a generator of greedy ones.

    Nodes and rules are the same for every arm.
    """
    responses = sample(model, problems, samples, generator, max_tokens)
    texts = list(map(TOKENS.text, responses))
    each = [problem for problem in problems for _ in range(samples)]
    scores = score(client, each, texts, EVALUATED, Nodes.AUTHOR)
    return figures(texts, list(map(len, responses)), scores, max_tokens)


def evaluate(
    policy: Policy, client: LocalClient, problems: Sequence[Problem], samples: int
) -> dict[str, float]:
    """Return the figures of sampled responses, and `greedy`, `greedy_throughout`, `greedy_ncr`."""
    greedy = answer(policy.model, client, problems, 1, None, policy.max_tokens)
    return {
        "greedy": greedy["acc"],
        "greedy_throughout": greedy["throughout"],
        "greedy_ncr": greedy["ncr"],
        **answer(policy.model, client, problems, samples, policy.generator, policy.max_tokens),
    }


def train(
    policy: Policy,
    arm: Arm,
    settings: Settings,
    group: int,
    problems: Sequence[Problem],
    held_out: Sequence[Problem],
    client: LocalClient,
) -> dict[str, Any]:
    """Train one run and return its curves and its last evaluation.

    Args:
        policy: a fresh start, trained in place.  Its seed decides the order of the problems; all
            arms of a seed have the same order.
        arm: reward and nodes.
        settings: of the study.
        group: responses to a problem.
        problems: to train on.
        held_out: to evaluate on; the curve has the first `curve_problems`.
        client: has the datasets of the arm and of the author.
    """
    began, began_cpu = time.monotonic(), time.process_time()
    order = problem_order(len(problems), policy.seed)
    dealer = random.Random(f"dealer {policy.seed}")
    trained: list[dict[str, float]] = []
    blocks: list[dict[str, float]] = []
    curve: list[dict[str, float]] = []

    def add_point(step: int) -> None:
        point = evaluate(policy, client, held_out[: settings.curve_problems], 1)
        curve.append({"step": step, **point})

    add_point(0)
    for step in range(1, settings.steps + 1):
        batch = [problems[next(order)] for _ in range(settings.responses // group)]
        responses = sample(policy.model, batch, group, policy.generator, policy.max_tokens)
        texts = list(map(TOKENS.text, responses))
        each = [problem for problem in batch for _ in range(group)]
        # The curriculum has two stages of equal length.
        epoch = int(step > settings.steps // 2)
        scores = score(client, each, texts, arm.reward, arm.nodes, epoch)
        rewards = [_known(s.reward) for s in scores]
        if arm.permuted:
            rewards = permuted_rewards(scores, arm.reward, group, dealer)
        advantages = group_advantages(rewards, group, arm.divided)
        prompts = [TOKENS.prompt(problem.problem) for problem in each]
        policy.update(prompts, responses, advantages)
        row = figures(texts, list(map(len, responses)), scores, policy.max_tokens)
        # No group is of one reward in all its responses: the step has a gradient everywhere.
        row["spread"] = fmean(bool(part.any()) for part in advantages.view(-1, group))
        trained.append({"reward": fmean(rewards), **row})
        if step % settings.curve_every == 0:
            add_point(step)
            blocks.append({name: fmean(r[name] for r in trained) for name in trained[0]})
            trained.clear()
    final = evaluate(policy, client, held_out[: settings.final_problems], settings.samples)
    return {
        # Means of the steps between two points of the curve.
        "train": _columns(blocks),
        "curve": _columns(curve),
        "final": {name: round(value, 5) for name, value in final.items()},
        "cpu_seconds": round(time.process_time() - began_cpu, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def problem_order(count: int, seed: int) -> Iterator[int]:
    """Yield the numbers of problems without end, each once before any twice."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(range(count), count)


def _known(value: float | None) -> float:
    assert value is not None, "score() returns no response without a score"
    return value


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [round(row[name], 5) for row in rows] for name in rows[0]}
