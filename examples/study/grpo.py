"""The training loop: GRPO as verl does it by default, on one thread, rewards from a real server.

A step samples `rollouts` responses to each of `prompts` problems, asks the server for their
rewards, and makes one update: advantages are rewards less their group's mean, over its standard
deviation; the loss is the mean over all tokens of the batch; no KL term.  Since there is one
update a batch, the ratio to the policy that sampled is 1, and clipping never acts.
`tests/examples/test_study.py` holds advantages, loss and gradient against verl's own functions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from consensuspr.client import LocalClient, RewardClient, RewardSpec, Rollout
from consensuspr.client.training.credit import finder_of_decoding, place_reward
from consensuspr.data import Problem
from consensuspr.scoring.types import Score, Status

from .arms import COUNTED, Arm, Growth, Nodes, Settings
from .model import END, Llama, Tokens, generate, response_log_probs
from .task import STYLES, equations_in, style_of

# As verl's compute_grpo_outcome_advantage.
_EPSILON = 1e-6
# Rows of a forward and backward pass, which fit a core's cache; the gradient is the batch's.
_MICRO_BATCH = 32
ANSWER_RULE = "dapo"


def group_advantages(rewards: Sequence[float], size: int) -> Tensor:
    """Return the (n,) advantages of rewards whose groups, of `size` each, lie side by side.

    In double precision up to here: in single, equal rewards can have a spread that is nothing but
    rounding, and advantages of a hundredth.
    """
    groups = torch.tensor(rewards, dtype=torch.float64).view(-1, size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = centred / (groups.std(dim=1, keepdim=True) + _EPSILON)
    return advantages.flatten().float()


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
    """A model with what samples from it and what updates it; responses end at `max_tokens`."""

    model: Llama
    learning_rate: float
    seed: int
    max_tokens: int
    tokens: Tokens = field(default_factory=Tokens)
    generator: torch.Generator = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.learning_rate, weight_decay=0.01
        )

    def sample(
        self, problems: Sequence[Problem], samples: int, *, greedy: bool = False
    ) -> list[list[int]]:
        """Return responses as token ids, those of a problem side by side."""
        prompts = [self.tokens.prompt(problem.problem) for problem in problems]
        generator = None if greedy else self.generator
        responses: list[list[int]] = generate(
            self.model, self.tokens, prompts, samples, generator, self.max_tokens
        )
        return responses

    def text(self, response: Sequence[int]) -> str:
        """Return what a response says; its end mark is no text."""
        ended = response[-1] == self.tokens.ids[END]
        return self.tokens.decode(response[:-1] if ended else response)

    def update(
        self, prompts: list[list[int]], responses: list[list[int]], advantages: Tensor
    ) -> None:
        """Make one step on a batch; advantages are (n, longest response)."""
        num_tokens = sum(map(len, responses))
        self.optimizer.zero_grad()
        # Rows of like length together: less padding.
        order = sorted(range(len(responses)), key=lambda row: len(responses[row]))
        for start in range(0, len(order), _MICRO_BATCH):
            rows = order[start : start + _MICRO_BATCH]
            part = [responses[row] for row in rows]
            log_probs = response_log_probs(self.model, [prompts[row] for row in rows], part)
            of_part = advantages[rows, : log_probs.shape[1]]
            policy_loss(log_probs, of_part, num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def score(
    client: RewardClient | LocalClient,
    problems: Iterable[Problem],
    texts: Sequence[str],
    reward: RewardSpec,
    dataset: str,
    *,
    epoch: int = 0,
    spans: bool = False,
) -> list[Score]:
    """Ask the server; one problem for each text.

    Raises:
        RuntimeError: a response has no score; nothing is made up for it.
    """
    rollouts = [
        Rollout(problem.problem_id, text) for problem, text in zip(problems, texts, strict=True)
    ]
    scores = client.score(
        rollouts,
        reward=reward,
        epoch=epoch,
        dataset=dataset,
        answer_rule=ANSWER_RULE,
        include_spans=spans,
    )
    for rollout, given in zip(rollouts, scores, strict=True):
        if given.status not in (Status.OK, Status.NO_NODES):
            raise RuntimeError(f"{rollout.problem_id}: {given.status} {given.message}")
    return list(scores)


def figures(
    texts: Sequence[str], lengths: Sequence[int], scores: Sequence[Score], max_tokens: int
) -> dict[str, float]:
    """Return what is watched of some responses, which end at `max_tokens`, as means."""
    equations = [equations_in(text) for text in texts]
    stated = sum(map(len, equations))
    styles = Counter(map(style_of, texts))
    wrong = [s.ncr for s in scores if not s.acc and s.ncr is not None]
    known = [s for s in scores if s.ncr is not None]
    channels = Counter(channel for s in scores for channel in s.channels or () if channel)
    return {
        "acc": fmean(s.acc or 0.0 for s in scores),
        "ncr": fmean([s.ncr or 0.0 for s in known] or [0.0]),
        "ncr_wrong": fmean(x or 0.0 for x in wrong) if wrong else 0.0,
        "guard": fmean([s.guard if s.guard is not None else 1.0 for s in known] or [1.0]),
        # Right in the answer and in all that comes before it.
        "throughout": fmean(float(s.acc == 1 and s.ncr_raw == 1) for s in scores),
        "stated": stated / len(texts),
        "duplicates": sum(len(e) - len(set(e)) for e in equations) / max(1, stated),
        "tokens": fmean(lengths),
        "with_nodes": len(known) / len(scores),
        "unended": fmean(float(length >= max_tokens) for length in lengths),
        "unanswered": fmean(float(not s.answer) for s in scores),
        # Of the nodes that are reached.
        "by_code": channels["code"] / max(1, channels.total()),
        **{style: styles[style] / len(texts) for style in STYLES},
    }


def evaluate(
    policy: Policy,
    client: RewardClient | LocalClient,
    problems: Sequence[Problem],
    samples: int,
    *,
    greedy: bool = False,
) -> dict[str, float]:
    """Return the figures of held-out problems, by the same nodes and rules for every arm."""
    responses = policy.sample(problems, samples, greedy=greedy)
    texts = [policy.text(response) for response in responses]
    asked = [problem for problem in problems for _ in range(samples)]
    scores = score(client, asked, texts, RewardSpec.outcome(**COUNTED), Nodes.AUTHOR)
    return figures(texts, [len(r) for r in responses], scores, policy.max_tokens)


def train(
    policy: Policy,
    arm: Arm,
    settings: Settings,
    problems: Sequence[Problem],
    held_out: Mapping[str, Sequence[Problem]],
    client: RewardClient | LocalClient,
    growth: Growth | None = None,
) -> dict[str, Any]:
    """Train one run and return its curves and its last evaluation.

    Args:
        policy: A fresh warm start, trained in place.  Its seed decides the order of the problems;
            all arms of a seed meet them in the same order.
        arm: What is rewarded.
        settings: Of the study.
        problems: To train on.
        held_out: By name; the curve asks the first `curve_problems` of the first.
        client: Of a server that has the datasets of the arm, or without one.
        growth: Of the arm whose nodes grow.
    """
    started = time.process_time()
    curve_problems = next(iter(held_out.values()))[: settings.curve_problems]
    order = _order(len(problems), policy.seed)
    lots = random.Random(f"permuted {policy.seed}")
    steps_per_epoch = len(problems) // settings.prompts
    trained: list[dict[str, float]] = []
    curve: list[dict[str, float]] = []

    def look(step: int) -> None:
        if step % settings.curve_every == 0:
            curve.append(
                {"step": step, **evaluate(policy, client, curve_problems, settings.samples)}
            )

    look(0)
    for step in range(1, settings.steps + 1):
        asked = [problems[next(order)] for _ in range(settings.prompts)]
        responses = policy.sample(asked, settings.rollouts)
        texts = [policy.text(response) for response in responses]
        each = [problem for problem in asked for _ in range(settings.rollouts)]
        # The curriculum has two stages of equal length.
        epoch = int(step > settings.steps // 2)
        dataset = growth.dataset if growth else arm.nodes
        scores = score(client, each, texts, arm.reward, dataset, epoch=epoch, spans=arm.step_credit)
        rewards = [_reward(given) for given in scores]
        weight = arm.reward.ncr_weight(epoch)
        if arm.permuted:
            rewards = permuted(rewards, scores, weight, settings.rollouts, lots)
        if arm.step_credit:
            advantages = _step_advantages(policy, responses, scores, weight, settings.rollouts)
        else:
            by_response = group_advantages(rewards, settings.rollouts)
            advantages = by_response[:, None].expand(-1, policy.max_tokens)
        prompts = [policy.tokens.prompt(problem.problem) for problem in each]
        policy.update(prompts, responses, advantages)
        row = figures(texts, [len(r) for r in responses], scores, policy.max_tokens)
        trained.append({"reward": fmean(rewards), **row})
        if growth:
            pass_over = (step - 1) // steps_per_epoch
            growth.see(pass_over, each, texts, [s.acc == 1 for s in scores])
            if step % steps_per_epoch == 0:
                growth.grow(pass_over)
        look(step)
    final = {
        name: {
            **evaluate(policy, client, rows, settings.samples),
            "greedy": evaluate(policy, client, rows, 1, greedy=True)["acc"],
        }
        for name, rows in held_out.items()
    }
    return {
        "train": _columns(trained),
        "curve": _columns(curve),
        "final": {name: _rounded(values) for name, values in final.items()},
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def permuted(
    rewards: Sequence[float],
    scores: Sequence[Score],
    ncr_weight: float,
    size: int,
    lots: random.Random,
) -> list[float]:
    """Return the rewards with the NCRs of each group handed round by lot.

    Of all ways to do so, each equally likely, a response gets its group's mean: the expected
    advantage of what it reached is 0.
    """
    found: list[float] = []
    for start in range(0, len(rewards), size):
        own = [given.ncr for given in scores[start : start + size]]
        for reward, before, after in zip(
            rewards[start : start + size], own, lots.sample(own, size), strict=True
        ):
            assert before is not None and after is not None, "every problem of this arm has nodes"
            found.append(reward + ncr_weight * (after - before))
    return found


def _reward(given: Score) -> float:
    """Return what a response earns; before a problem has nodes, its outcome is all there is."""
    earned = given.acc if given.reward is None else given.reward
    assert earned is not None, "score() takes none without either"
    return earned


def _order(count: int, seed: int) -> Any:
    """Yield the numbers of problems without end, each once before any twice."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(range(count), count)


def _step_advantages(
    policy: Policy,
    responses: list[list[int]],
    scores: Sequence[Score],
    ncr_weight: float,
    group: int,
) -> Tensor:
    """Return the (n, longest) advantages of step credit, by the estimator that verl runs use."""
    from consensuspr.client.verl.step_credit import step_advantage

    width = max(map(len, responses))
    rewards, mask = torch.zeros(len(responses), width), torch.zeros(len(responses), width)
    for row, (response, given) in enumerate(zip(responses, scores, strict=True)):
        mask[row, : len(response)] = 1
        words = [policy.tokens.words[token] for token in response]
        if response[-1] == policy.tokens.ids[END]:
            words[-1] = ""
        assert given.reward is not None
        find = finder_of_decoding(range(len(words)), partial(_joined, words))
        placed = place_reward(given.reward, given, ncr_weight, find, [True] * len(response))
        for token, amount in placed.items():
            rewards[row, token] = amount
    index = torch.arange(len(responses)) // group
    advantages: Tensor = step_advantage(rewards, mask, index.numpy())[0]
    return advantages


def _joined(words: Sequence[str], places: Sequence[int]) -> str:
    return "".join(words[place] for place in places)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [round(row[name], 5) for row in rows] for name in rows[0]}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in values.items()}
