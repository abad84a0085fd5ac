"""The supervised phase before training: a model that writes solutions, seldom right ones.

Reinforcement learning cannot begin at a model that never writes the form.  The teacher of this
phase is right at first and errs on purpose in the end: each result is then wrong with some
probability, and the solution goes on from the wrong one.  So the model learns the form and most of
the arithmetic, and is right in a step often and in a whole chain seldom, which is where the rewards
differ: the outcome is sparse, the covered nodes are not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import islice

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from .problems import LARGEST, SIGNS, Chain, calculate, draw_chains, solution

BATCH = 64
LEARNING_RATE = 3e-3

# Part of the phase in which the teacher is right: arithmetic is learned from wrong solutions, too,
# but several times more slowly.
SOUND_PART = 0.75


def flawed_solution(chain: Chain, rng: random.Random, error_rate: float) -> str:
    """Return a solution whose every step is wrong with probability `error_rate`."""
    left = chain.steps[0].left
    equations = []
    for step in chain.steps:
        result = calculate(left, step.word, step.right)
        if rng.random() < error_rate:
            result = rng.choice([number for number in range(2, LARGEST + 1) if number != result])
        equations.append(f"{left}{SIGNS[step.word]}{step.right}={result}")
        left = result
    return solution(equations, str(left))


def warm_up(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    steps: int,
    error_rate: float,
    seed: int,
    avoid: set[str],
    report: Callable[[int, float], None],
) -> float:
    """Train the model to imitate the flawed teacher.

    Args:
        model: The model, trained in place.
        tokenizer: Its tokenizer.
        steps: Updates, of 64 solutions each.
        error_rate: Probability that the teacher errs in a step in the end, in [0, 1].
        seed: Where problems and errors start.
        avoid: Texts of problems that are kept for validation.
        report: Called with (updates done, loss).

    Returns:
        The seconds that it took.
    """
    started = time.monotonic()
    rng = random.Random(seed)
    torch.manual_seed(seed)
    chains = draw_chains(seed, avoid=avoid)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for number in range(1, steps + 1):
        rate = 0.0 if number <= SOUND_PART * steps else error_rate
        pairs = [(c.text, flawed_solution(c, rng, rate)) for c in islice(chains, BATCH)]
        ids, labels = _encode(pairs, tokenizer)
        mask = ids != tokenizer.pad_token_id
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        report(number, loss.item())
    model.eval()
    return time.monotonic() - started


def _encode(
    pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (n, width) token ids and labels; only the response is learned from."""
    rows, labels = [], []
    for question, response in pairs:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        answer = [*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id]
        rows.append(prompt + answer)
        labels.append([-100] * len(prompt) + answer)
    width = max(map(len, rows))
    pad = tokenizer.pad_token_id
    return (
        torch.tensor([row + [pad] * (width - len(row)) for row in rows]),
        torch.tensor([row + [-100] * (width - len(row)) for row in labels]),
    )
