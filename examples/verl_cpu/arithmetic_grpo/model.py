"""The model of both examples: tokens, a Llama of a third of a million weights, supervised training.

Written out in plain torch, because a batch of 128 responses then takes a fifth of a second of one
core: rows that have ended leave the batch, and a prompt is read once for all its responses.
`save` writes the weights under Hugging Face's names, so that verl loads the same model;
`tests/examples/test_study.py` compares the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

PAD, END, USER, ASSISTANT, UNKNOWN = "<pad>", "<end>", "<user>", "<assistant>", "<unknown>"
HIDDEN, INNER, LAYERS, HEADS, MAX_TOKENS = 96, 256, 3, 4, 256
LEARNING_RATE = 3e-3
# Share of rows that still go on, at which those that have ended leave the batch.
_KEPT = 0.8

# A message of the user, or of a tool, and a mark after which the model writes.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] in ('user', 'tool') %}<user>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Tokens:
    """A vocabulary: text to ids and back, the same as the tokenizer that `save` writes."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.words = [PAD, END, USER, ASSISTANT, UNKNOWN, *vocabulary]
        self.ids = {word: number for number, word in enumerate(self.words)}
        longest_first = sorted(vocabulary, key=len, reverse=True)
        # If there are tokens of several digits, every number is one token.
        whole = [r"\d+"] if any(len(word) > 1 and word.isdigit() for word in vocabulary) else []
        self.pattern = "|".join([*whole, *map(re.escape, longest_first), r"[\s\S]"])

    def encode(self, text: str) -> list[int]:
        return [self.ids.get(word, self.ids[UNKNOWN]) for word in re.findall(self.pattern, text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[number] for number in ids)

    def prompt(self, text: str) -> list[int]:
        """Return the prompt of a problem."""
        return [self.ids[USER], *self.encode(text), self.ids[ASSISTANT]]

    def response(self, text: str) -> list[int]:
        """Return a response that ends."""
        return [*self.encode(text), self.ids[END]]

    def text(self, response: Sequence[int]) -> str:
        """Return the text of a response, without its end mark."""
        ended = response[-1] == self.ids[END]
        return self.decode(response[:-1] if ended else response)


class Layer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention and feed-forward; the projections of a kind lie in one matrix."""

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
        """Append keys and values of some tokens of each row; return all."""
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

    def __init__(self, num_tokens: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(num_tokens, HIDDEN)
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
        """Return the normed states behind the last layer: (rows, width, hidden).

        Args:
            ids: (rows, width); without caches, rows are padded on the right.
            places: (rows, width), each token's place in its row; by default its column.
            caches: of each layer, the tokens before these.
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
    begins = torch.tensor([len(prompt) for prompt in prompts])
    columns = torch.arange(int(lengths.max()))
    mask = columns < lengths[:, None]
    at = (begins[:, None] + columns).clamp(max=width - 1)
    row = torch.arange(len(rows))[:, None].expand_as(at)
    # Logits only where a response's token is predicted.
    logits = model.logits(model(ids)[row[mask], at[mask] - 1])
    chosen = -functional.cross_entropy(logits, ids[row[mask], at[mask]], reduction="none")
    return torch.zeros(mask.shape).masked_scatter(mask, chosen)


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Return a token for each of the (rows, tokens) logits.

    One random number a row: `torch.multinomial` draws one for each token, and takes as long as
    half of the model.
    """
    reached = logits.softmax(dim=-1).cumsum(dim=-1)
    at = torch.rand(len(logits), 1, generator=generator) * reached[:, -1:]
    # Rounding can put the number at the very end.
    return torch.searchsorted(reached, at, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


@torch.no_grad()  # type: ignore[untyped-decorator]
def generate(
    model: Llama,
    tokens: Tokens,
    prompts: list[list[int]],
    samples: int,
    generator: torch.Generator | None,
    max_tokens: int,
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
    # A padded place sees itself: a softmax over nothing would give no number.
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
    going = torch.ones(len(row), dtype=torch.bool)
    row = torch.arange(len(row))
    for step in range(max_tokens):
        chosen = logits.argmax(dim=-1) if generator is None else _draw(logits, generator)
        for number, token, goes in zip(row.tolist(), chosen.tolist(), going.tolist(), strict=True):
            if goes:
                responses[number].append(token)
        going = going & (chosen != tokens.ids[END])
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


def warm_up(
    model: Llama,
    tokens: Tokens,
    solutions: Iterator[tuple[str, str]],
    *,
    steps: int,
    batch: int,
    report: Callable[[int], object] = lambda done: None,
) -> int:
    """Train on solutions, pairs of problem and response; return the number of updates.

    Args:
        model: trained in place.
        tokens: its tokens.
        solutions: without end.
        steps: updates of the learning rate's schedule.
        batch: solutions of an update.
        report: called with the number of updates after each; `True` ends the training.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for number in range(1, steps + 1):
        pairs = list(islice(solutions, batch))
        responses = [tokens.response(response) for _, response in pairs]
        prompts = [tokens.prompt(problem) for problem, _ in pairs]
        loss = -response_log_probs(model, prompts, responses).sum() / sum(map(len, responses))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if report(number) is True:
            return number
    return steps


def save(model: Llama, tokens: Tokens, folder: Path) -> None:
    """Write model and tokenizer as Hugging Face's `from_pretrained` reads them."""
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    fast = Tokenizer(WordLevel(tokens.ids, unk_token=UNKNOWN))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(tokens.pattern), "isolated")
    fast.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=fast,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokens.words),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=tokens.ids[PAD],
        eos_token_id=tokens.ids[END],
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    state = {
        "model.embed_tokens.weight": model.embedding.weight,
        "lm_head.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
    }
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        parts = dict(zip("qkv", layer.qkv.weight.chunk(3), strict=True))
        gate, up = layer.gate_up.weight.chunk(2)
        names = {f"self_attn.{name}_proj": weight for name, weight in parts.items()}
        names |= {"self_attn.o_proj": layer.out.weight, "mlp.down_proj": layer.down.weight}
        names |= {"mlp.gate_proj": gate, "mlp.up_proj": up}
        names |= {"input_layernorm": layer.norm1.weight}
        names |= {"post_attention_layernorm": layer.norm2.weight}
        state |= {f"model.layers.{number}.{name}.weight": w for name, w in names.items()}
    theirs = LlamaForCausalLM(config)
    theirs.load_state_dict(state)
    theirs.save_pretrained(folder)
