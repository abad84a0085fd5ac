"""The training loop: GRPO as verl does it by default, on one thread, rewards from a real server.

A step samples `rollouts` responses to each of `prompts` problems, gets their rewards from the
server, and makes one update: advantages are rewards less their group's mean, over its standard
deviation; the loss is the mean over all tokens of the batch; no KL term.  Since there is one
update a batch, the ratio to the policy that sampled is 1, and clipping never acts.
`tests/examples/test_study.py` compares advantages, loss and gradient with verl's own functions.
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
from arithmetic_grpo.model import END, Llama, generate, response_log_probs
from torch import Tensor

from consensuspr.client import LocalClient, RewardClient, RewardSpec, Rollout
from consensuspr.client.training.credit import finder_of_decoding, place_reward
from consensuspr.data import Problem
from consensuspr.scoring.types import Score, Status

from .arms import COUNTED, Arm, Growth, Nodes, Settings
from .inputs import TOKENS
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
    """A model with its sampling and its updates; responses end at `max_tokens`."""

    model: Llama
    learning_rate: float
    seed: int
    max_tokens: int
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
        prompts = [TOKENS.prompt(problem.problem) for problem in problems]
        generator = None if greedy else self.generator
        responses: list[list[int]] = generate(
            self.model, TOKENS, prompts, samples, generator, self.max_tokens
        )
        return responses

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
            log_probs = response_log_probs(
                self.model, [prompts[row] for row in rows], [responses[row] for row in rows]
            )
            policy_loss(log_probs, advantages[rows, : log_probs.shape[1]], num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


Client = RewardClient | LocalClient


def score(
    client: Client,
    problems: Iterable[Problem],
    texts: Sequence[str],
    reward: RewardSpec,
    dataset_name: str,
    *,
    epoch: int = 0,
    spans: bool = False,
) -> list[Score]:
    """Return the scores of responses; one problem for each text.

    Raises:
        RuntimeError: a response has no score.
    """
    rollouts = [Rollout(p.problem_id, text) for p, text in zip(problems, texts, strict=True)]
    scores = client.score(
        rollouts,
        reward=reward,
        epoch=epoch,
        dataset=dataset_name,
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
    """Return the watched figures of some responses, which end at `max_tokens`, as means."""
    equations = [equations_in(text) for text in texts]
    stated = sum(map(len, equations))
    styles = Counter(map(style_of, texts))
    known = [s for s in scores if s.ncr is not None]
    channels = Counter(channel for s in scores for channel in s.channels or () if channel)

    def mean(values: Iterable[float | None]) -> float:
        found = [value or 0.0 for value in values]
        return fmean(found) if found else 0.0

    return {
        "acc": mean(s.acc for s in scores),
        "ncr": mean(s.ncr for s in known),
        "ncr_wrong": mean(s.ncr for s in known if not s.acc),
        "guard": mean(1.0 if s.guard is None else s.guard for s in known) if known else 1.0,
        # Right in the answer and in all that comes before it.
        "throughout": mean(float(s.acc == 1 and s.ncr_raw == 1) for s in scores),
        "stated": stated / len(texts),
        "duplicates": sum(len(e) - len(set(e)) for e in equations) / max(1, stated),
        "tokens": fmean(lengths),
        "with_nodes": len(known) / len(scores),
        "unended": mean(float(length >= max_tokens) for length in lengths),
        "unanswered": mean(float(not s.answer) for s in scores),
        # Share of the nodes that are reached.
        "by_code": channels["code"] / max(1, channels.total()),
        **{style: styles[style] / len(texts) for style in STYLES},
    }


def evaluate(
    policy: Policy,
    client: Client,
    problems: Sequence[Problem],
    samples: int,
    *,
    greedy: bool = False,
) -> dict[str, float]:
    """Return the figures of held-out problems, by the same nodes and rules for every arm."""
    responses = policy.sample(problems, samples, greedy=greedy)
    texts = list(map(TOKENS.text, responses))
    each = [problem for problem in problems for _ in range(samples)]
    scores = score(client, each, texts, RewardSpec.outcome(**COUNTED), Nodes.AUTHOR)
    return figures(texts, list(map(len, responses)), scores, policy.max_tokens)


def train(
    policy: Policy,
    arm: Arm,
    settings: Settings,
    problems: Sequence[Problem],
    held_out: Mapping[str, Sequence[Problem]],
    client: Client,
    growth: Growth | None = None,
) -> dict[str, Any]:
    """Train one run and return its curves and its last evaluation.

    Args:
        policy: a fresh warm start, trained in place.  Its seed decides the order of the problems;
            all arms of a seed have the same order.
        arm: reward and nodes.
        settings: of the study.
        problems: to train on.
        held_out: by name; the curve has the first `curve_problems` of the first.
        client: of a server that has the datasets of the arm, or without one.
        growth: of the arm whose nodes grow.
    """
    started = time.process_time()
    curve_problems = next(iter(held_out.values()))[: settings.curve_problems]
    order = problem_order(len(problems), policy.seed)
    permutations = random.Random(f"permuted {policy.seed}")
    steps_per_epoch = len(problems) // settings.prompts
    group = settings.rollouts
    trained: list[dict[str, float]] = []
    curve: list[dict[str, float]] = []

    def add_point(step: int) -> None:
        if step % settings.curve_every == 0:
            point = evaluate(policy, client, curve_problems, settings.samples)
            curve.append({"step": step, **point})

    add_point(0)
    for step in range(1, settings.steps + 1):
        batch = [problems[next(order)] for _ in range(settings.prompts)]
        responses = policy.sample(batch, group)
        texts = list(map(TOKENS.text, responses))
        each = [problem for problem in batch for _ in range(group)]
        # The curriculum has two stages of equal length.
        epoch = int(step > settings.steps // 2)
        name = growth.dataset if growth else arm.nodes
        scores = score(client, each, texts, arm.reward, name, epoch=epoch, spans=arm.step_credit)
        # The outcome, as long as a problem has no nodes.
        rewards = [_known(s.acc if s.reward is None else s.reward) for s in scores]
        weight = arm.reward.ncr_weight(epoch)
        if arm.permuted:
            rewards = permuted(rewards, scores, weight, group, permutations)
        if arm.step_credit:
            advantages = _step_advantages(responses, scores, weight, group)
        else:
            advantages = group_advantages(rewards, group)[:, None].expand(-1, policy.max_tokens)
        prompts = [TOKENS.prompt(problem.problem) for problem in each]
        policy.update(prompts, responses, advantages)
        row = figures(texts, list(map(len, responses)), scores, policy.max_tokens)
        trained.append({"reward": fmean(rewards), **row})
        if growth:
            number = (step - 1) // steps_per_epoch
            growth.see(number, each, texts, [s.acc == 1 for s in scores])
            if step % steps_per_epoch == 0:
                growth.grow(number)
        add_point(step)
    final = {}
    for name, rows in held_out.items():
        values = evaluate(policy, client, rows, settings.samples)
        values["greedy"] = evaluate(policy, client, rows, 1, greedy=True)["acc"]
        final[name] = {figure: round(value, 5) for figure, value in values.items()}
    return {
        "train": _columns(trained),
        "curve": _columns(curve),
        "final": final,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def permuted(
    rewards: Sequence[float],
    scores: Sequence[Score],
    ncr_weight: float,
    size: int,
    rng: random.Random,
) -> list[float]:
    """Return the rewards with the NCRs of each group permuted.

    All permutations are equally likely, so a response gets its group's mean in expectation: the
    expected advantage of the nodes that it reached is 0.
    """
    found: list[float] = []
    for start in range(0, len(rewards), size):
        own = [_known(given.ncr) for given in scores[start : start + size]]
        of_group = rewards[start : start + size]
        for reward, before, after in zip(of_group, own, rng.sample(own, size), strict=True):
            found.append(reward + ncr_weight * (after - before))
    return found


def problem_order(count: int, seed: int) -> Iterator[int]:
    """Yield the numbers of problems without end, each once before any twice."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(range(count), count)


def _step_advantages(
    responses: list[list[int]], scores: Sequence[Score], ncr_weight: float, group: int
) -> Tensor:
    """Return the (n, longest) advantages of step credit, by the estimator that verl runs use."""
    from consensuspr.client.verl.step_credit import step_advantage

    width = max(map(len, responses))
    rewards, mask = torch.zeros(len(responses), width), torch.zeros(len(responses), width)
    for row, (response, given) in enumerate(zip(responses, scores, strict=True)):
        mask[row, : len(response)] = 1
        words = ["" if token == TOKENS.ids[END] else TOKENS.words[token] for token in response]

        def decode(places: Sequence[int], words: list[str] = words) -> str:
            return "".join(words[place] for place in places)

        find = finder_of_decoding(range(len(words)), decode)
        placed = place_reward(_known(given.reward), given, ncr_weight, find, [True] * len(words))
        for token, amount in placed.items():
            rewards[row, token] = amount
    index = torch.arange(len(responses)) // group
    advantages: Tensor = step_advantage(rewards, mask, index.numpy())[0]
    return advantages


def _known(value: float | None) -> float:
    assert value is not None, "score() returns no response without a score"
    return value


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [round(row[name], 5) for row in rows] for name in rows[0]}
