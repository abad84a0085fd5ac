"""The model: its tokens, a Llama of a third of a million weights, sampling, warm and weak starts.

Written out in plain torch, because a batch of 128 responses then takes a fifth of a second of one
core: rows that have ended leave the batch, and a prompt is read once for all its responses.  The
weights are Hugging Face's by name (`save`), so that verl loads the same model;
`tests/examples/test_study.py` compares the two.

The warm start is ordinary supervised learning on right solutions, in all styles and ways, that is
stopped early: the model has the form, and is right in a step often and in a whole solution seldom.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from .task import MAX_RESPONSE_TOKENS, STYLES, Story, vocabulary, write

PAD, END, USER, ASSISTANT, UNKNOWN = "<pad>", "<end>", "<user>", "<assistant>", "<unknown>"
MAX_TOKENS = 256
# Part of the rows that still go on, at which those that have ended leave the batch.
_KEPT = 0.8


class Tokens:
    """The vocabulary: text to ids and back, the same as the tokenizer that `save` writes."""

    def __init__(self) -> None:
        self.words = [PAD, END, USER, ASSISTANT, UNKNOWN, *vocabulary()]
        self.ids = {word: number for number, word in enumerate(self.words)}
        longest_first = sorted(self.words[5:], key=len, reverse=True)
        # A number is one token however the alternatives are ordered.
        self.pattern = "|".join([r"\d+", *map(re.escape, longest_first), r"[\s\S]"])

    def encode(self, text: str) -> list[int]:
        return [self.ids.get(word, self.ids[UNKNOWN]) for word in re.findall(self.pattern, text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[number] for number in ids)

    def prompt(self, text: str) -> list[int]:
        """Return what the model is shown of a problem."""
        return [self.ids[USER], *self.encode(text), self.ids[ASSISTANT]]


# As of `arithmetic_grpo.model.make_model`: a third of a million weights.
HIDDEN, INNER, LAYERS, HEADS = 96, 256, 3, 4


class Layer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention and what follows it; the projections of a kind lie in one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)
        self.norm1 = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-6)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None) -> Tensor:
        rows, width, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(rows, width, 3, HEADS, hidden // HEADS)
        q, k, v = qkv.transpose(1, 3).unbind(2)
        q, k = _rotate(q, turn), _rotate(k, turn)
        if cache is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k, v = cache.add(k, v)
            # By hand: for one token a row, torch's kernel takes longer.
            scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1]) + cache.bias
            mixed = scores.softmax(dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, width, hidden))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Cache:
    """Keys and values of one layer for rows whose prompts are padded on the left.

    Attributes:
        bias: added to the scores of (rows, 1, queries, keys): 0 where a key is seen, else -inf.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys = self.values = self.bias = torch.empty(0)
        self.used = 0

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append what some tokens of each row have, and return all that there is."""
        rows, heads, count, width = keys.shape
        if not self.used:
            self.keys = keys.new_zeros(rows, heads, self.capacity, width)
            self.values = torch.zeros_like(self.keys)
        end = self.used + count
        self.keys[:, :, self.used : end] = keys
        self.values[:, :, self.used : end] = values
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def take(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.keys, self.values = self.keys[rows], self.values[rows]


def _rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = turn
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Llama(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A Llama; the output uses the embedding's weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(len(Tokens().words), HIDDEN)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm = nn.RMSNorm(HIDDEN, eps=1e-6)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
        width = HIDDEN // HEADS
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(MAX_TOKENS)[:, None] * frequencies.repeat(2)
        self.cosine, self.sine = angles.cos(), angles.sin()

    def forward(
        self, ids: Tensor, places: Tensor | None = None, caches: list[Cache] | None = None
    ) -> Tensor:
        """Return what the norm leaves behind the last layer: (rows, width, hidden).

        Args:
            ids: (rows, width); without caches, rows are padded on the right.
            places: (rows, width) of each token its place in its row; without it, its column.
            caches: of each layer, what precedes these tokens.
        """
        if places is None:
            turn = (self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]])
        else:
            turn = (self.cosine[places][:, None], self.sine[places][:, None])
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, turn, caches[number] if caches else None)
        normed: Tensor = self.norm(x)
        return normed

    def logits(self, states: Tensor) -> Tensor:
        return functional.linear(states, self.embedding.weight)


def response_log_probs(
    model: Llama, prompts: list[list[int]], responses: list[list[int]]
) -> Tensor:
    """Return the (n, longest response) log probabilities of the responses' tokens, 0 behind."""
    rows = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    lengths = torch.tensor([len(response) for response in responses])
    longest = int(lengths.max())
    begins = torch.tensor([len(prompt) for prompt in prompts])
    columns = torch.arange(longest)
    mask = columns < lengths[:, None]
    at = (begins[:, None] + columns).clamp(max=width - 1)
    row = torch.arange(len(rows))[:, None].expand_as(at)
    # The output is made where a response's token is predicted, and nowhere else.
    states = model(ids)[row[mask], at[mask] - 1]
    chosen = -functional.cross_entropy(
        model.logits(states), ids[row[mask], at[mask]], reduction="none"
    )
    return torch.zeros(mask.shape).masked_scatter(mask, chosen)


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate(
    model: Llama,
    tokens: Tokens,
    prompts: list[list[int]],
    samples: int,
    generator: torch.Generator | None,
    max_tokens: int = MAX_RESPONSE_TOKENS,
) -> list[list[int]]:
    """Return `samples` responses to each prompt at temperature 1, ends included, prompt by prompt.

    A response that does not end is cut off at `max_tokens`.  Without a generator, each token is
    the most likely one.
    """
    longest = max(map(len, prompts))
    pad = torch.tensor([longest - len(prompt) for prompt in prompts])
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    capacity = longest + max_tokens
    hidden = torch.arange(capacity) < pad[:, None]
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
    caches = [Cache(capacity) for _ in model.layers]
    later = torch.full((longest, longest), -torch.inf).triu(1)
    first = bias[:, None, None, :longest] + later
    # A padded place sees itself: what sees nothing would give no number.
    first.diagonal(dim1=2, dim2=3).zero_()
    for cache in caches:
        cache.bias = first
    places = (torch.arange(longest) - pad[:, None]).clamp(min=0)
    logits = model.logits(model(ids, places, caches)[:, -1])
    # From here on a row for each response.
    row = torch.arange(len(prompts)).repeat_interleave(samples)
    logits, pad, bias = logits[row], pad[row], bias[row]
    for cache in caches:
        cache.take(row)
    responses: list[list[int]] = [[] for _ in row]
    end = tokens.ids[END]
    going = torch.ones(len(row), dtype=torch.bool)
    row = torch.arange(len(row))
    for step in range(max_tokens):
        if generator is None:
            chosen = logits.argmax(dim=-1)
        else:
            chosen = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]
        for number, token, goes in zip(row.tolist(), chosen.tolist(), going.tolist(), strict=True):
            if goes:
                responses[number].append(token)
        going = going & (chosen != end)
        left = int(going.sum())
        if not left:
            break
        # Not at every end: to move the caches costs more than some idle rows.
        if left <= _KEPT * len(row):
            kept = going.nonzero()[:, 0]
            row, chosen, pad, bias, going = (x[kept] for x in (row, chosen, pad, bias, going))
            for cache in caches:
                cache.take(kept)
        for cache in caches:
            cache.bias = bias[:, None, None, : longest + step + 1]
        places = (longest + step - pad)[:, None]
        logits = model.logits(model(chosen[:, None], places, caches)[:, -1])
    return responses


LEARNING_RATE, WARM_BATCH = 3e-3, 64


def warm_up(
    model: Llama,
    tokens: Tokens,
    stories: Iterator[Story],
    *,
    steps: int,
    seed: int,
    styles: Sequence[str] = STYLES,
    stop: Callable[[int], bool] = lambda done: False,
) -> int:
    """Train on right solutions in styles and ways drawn by lot.

    Args:
        model: Trained in place.
        tokens: Its tokens.
        stories: What to solve.
        steps: Updates that the schedule of the learning rate is made for.
        seed: Decides ways and styles.
        styles: To write in.
        stop: Asked after each update whether that was the last.

    Returns:
        The updates made.
    """
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for number in range(1, steps + 1):
        batch = list(islice(stories, WARM_BATCH))
        responses = [
            [*tokens.encode(write(story.operations(rng), rng.choice(styles))), tokens.ids[END]]
            for story in batch
        ]
        prompts = [tokens.prompt(story.text) for story in batch]
        log_probs = response_log_probs(model, prompts, responses)
        loss = -log_probs.sum() / sum(map(len, responses))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if stop(number):
            return number
    return steps


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


def save(model: Llama, folder: Path) -> None:
    """Write model and tokenizer as Hugging Face's `from_pretrained` reads them."""
    from arithmetic_grpo.model import make_model, make_tokenizer
    from arithmetic_grpo.model import save as save_both

    tokenizer = make_tokenizer(vocabulary(), Tokens().pattern)
    theirs = make_model(tokenizer, seed=0)
    state = {
        "model.embed_tokens.weight": model.embedding.weight,
        "lm_head.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
    }
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        prefix = f"model.layers.{number}."
        names = ("q_proj", "k_proj", "v_proj")
        for name, part in zip(names, layer.qkv.weight.chunk(3), strict=True):
            state[f"{prefix}self_attn.{name}.weight"] = part
        gate, up = layer.gate_up.weight.chunk(2)
        state |= {
            f"{prefix}self_attn.o_proj.weight": layer.out.weight,
            f"{prefix}mlp.gate_proj.weight": gate,
            f"{prefix}mlp.up_proj.weight": up,
            f"{prefix}mlp.down_proj.weight": layer.down.weight,
            f"{prefix}input_layernorm.weight": layer.norm1.weight,
            f"{prefix}post_attention_layernorm.weight": layer.norm2.weight,
        }
    theirs.load_state_dict(state)
    save_both(theirs, tokenizer, folder)
