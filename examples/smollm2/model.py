"""SmolLM2 in plain torch: the Llama, its tokens, and sampling with a CUDA graph.

Sampling token by token is bound by kernel launches: Hugging Face's `generate` takes 20 ms a token
for any batch.  Here keys and values lie in fixed memory and a token is one replay of a graph.  The
same weights in the same precision sample and train, so that a batch is exactly on-policy.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from arithmetic_grpo.model import Llama as SmallLlama
from arithmetic_grpo.model import Tokens
from torch import Tensor, nn
from torch.nn import functional

# A graph sees the first columns of the cache, rounded up to this many.
_SEEN = 64


class Vocabulary(Protocol):
    """Text to token ids and back."""

    def prompt(self, text: str) -> list[int]: ...
    def response(self, text: str) -> list[int]: ...
    def text(self, response: Sequence[int]) -> str: ...


class ChatTokens:
    """The tokens of a Hugging Face tokenizer, in SmolLM2's chat format."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.end: int = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, text: str) -> list[int]:
        return self._encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    def response(self, text: str) -> list[int]:
        return [*self._encode(text), self.end]

    def text(self, response: Sequence[int]) -> str:
        return str(self._tokenizer.decode(response, skip_special_tokens=True))


class Layer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention and feed-forward; the projections of a kind lie in one matrix."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, self.width = config.hidden_size, config.head_dim
        self.heads, self.pairs = config.num_attention_heads, config.num_key_value_heads
        of_all = (self.heads + 2 * self.pairs) * self.width
        self.qkv = nn.Linear(hidden, of_all, bias=False)
        self.out = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, hidden, bias=False)
        self.norm1 = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.norm2 = nn.RMSNorm(hidden, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None) -> Tensor:
        rows, count, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(rows, count, -1, self.width).transpose(1, 2)
        turned, v = qkv.split([self.heads + self.pairs, self.pairs], dim=1)
        turned = turned * turn[0] + turned.roll(self.width // 2, dims=-1) * turn[1]
        q, k = turned.split([self.heads, self.pairs], dim=1)
        group = self.heads // self.pairs
        if cache is None:
            k, v = (y.repeat_interleave(group, dim=1) for y in (k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k, v = cache.add(k, v)
            # The queries that share a key side by side: keys are read once.
            q = q.reshape(rows, self.pairs, group * count, self.width)
            scores = (q * self.width**-0.5) @ k.transpose(2, 3)
            scores = scores.view(rows, self.pairs, group, count, -1) + cache.bias
            mixed = scores.softmax(dim=-1).view(rows, self.pairs, group * count, -1) @ v
            mixed = mixed.view(rows, self.heads, count, self.width)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, count, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Cache:
    """Keys and values of one layer, in memory that does not move.

    Attributes:
        columns: (count,) where the next tokens are put.
        bias: added to the scores of (rows, 1, 1, count, seen): 0 where a key is seen, else -inf.
    """

    def __init__(self, rows: int, capacity: int, layer: Layer) -> None:
        self.keys = torch.zeros(rows, layer.pairs, capacity, layer.width)
        self.values = torch.zeros_like(self.keys)
        self.columns = self.bias = torch.empty(0)

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.columns, keys)
        self.values.index_copy_(2, self.columns, values)
        seen = self.bias.shape[-1]
        return self.keys[:, :, :seen], self.values[:, :, :seen]


# Each of our matrices, and those of Hugging Face's layer that lie in it.
_PARTS = {
    "qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "out": "self_attn.o_proj",
    "gate_up": "mlp.gate_proj mlp.up_proj",
    "down": "mlp.down_proj",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
}


class Llama(SmallLlama):
    """A Llama of any size with tied embeddings, made of Hugging Face's `LlamaForCausalLM`."""

    def __init__(self, theirs: Any, max_tokens: int = 1024) -> None:
        # Only the forward pass is inherited: sizes and weights are theirs.
        nn.Module.__init__(self)
        config, weights = theirs.config, theirs.state_dict()
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        width = config.head_dim
        base = config.rope_parameters["rope_theta"]
        angles = torch.arange(max_tokens)[:, None] * base ** (-torch.arange(0, width, 2) / width)
        # Halves are swapped with one sign: (first, second) becomes (-second, first).
        self.cosine = torch.cat((angles.cos(), angles.cos()), dim=1)
        self.sine = torch.cat((-angles.sin(), angles.sin()), dim=1)
        state = {
            "embedding.weight": weights["model.embed_tokens.weight"],
            "norm.weight": weights["model.norm.weight"],
        }
        for number in range(len(self.layers)):
            for ours, parts in _PARTS.items():
                of_layer = [f"model.layers.{number}.{part}.weight" for part in parts.split()]
                state[f"layers.{number}.{ours}.weight"] = torch.cat([weights[n] for n in of_layer])
        self.load_state_dict(state)


def load(path: Path) -> tuple[Any, ChatTokens]:
    """Return Hugging Face's model and the tokens, from a GGUF file or a folder that it saved."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # Reading a GGUF file takes half a minute, for the model and for its tokens again.
    at = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
    model = AutoModelForCausalLM.from_pretrained(at[0], dtype=torch.float32, **at[1])
    return model, ChatTokens(AutoTokenizer.from_pretrained(at[0], **at[1]))


def tiny(seed: int) -> tuple[Any, Tokens]:
    """Return a model of random weights whose tokens are characters, for tests."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = Tokens(string.printable)
    config = LlamaConfig(
        vocab_size=len(tokens.words),
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config), tokens


class Sampler:
    """Samples responses of one model, whose weights may change in place between calls.

    Args:
        model: on the default device.
        end: the token that ends a response.
        rows: responses at a time.
        longest: tokens of the longest prompt.
        max_tokens: of a response.
    """

    def __init__(self, model: Llama, end: int, rows: int, longest: int, max_tokens: int) -> None:
        self.model, self._end, self._rows, self.max_tokens = model, end, rows, max_tokens
        # A last step writes one column behind the last token.
        self._capacity = -(-(longest + max_tokens) // _SEEN) * _SEEN
        self._caches = [Cache(rows, self._capacity, layer) for layer in model.layers]
        self._logits = torch.zeros(rows, len(model.embedding.weight))
        self._bias = torch.zeros(rows, 1, 1, 1, self._capacity)
        self._drawn = torch.zeros(rows, max_tokens)
        self._tokens = torch.zeros(rows, max_tokens, dtype=torch.long)
        self._ended = torch.zeros(rows, dtype=torch.bool)
        self._place = torch.zeros(rows, 1, dtype=torch.long)
        self._step, self._column = (torch.zeros(1, dtype=torch.long) for _ in range(2))
        self._graphs: dict[int, Any] = {}
        if self._logits.is_cuda:
            for seen in range(_SEEN, self._capacity + 1, _SEEN):
                self._graphs[seen] = self._captured(seen)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def __call__(
        self, prompts: Sequence[list[int]], generator: torch.Generator | None
    ) -> list[list[int]]:
        """Return a response to each prompt at temperature 1, ends included.

        A response that does not end is cut off at `max_tokens`.  Without a generator, which is one
        of the CPU, each token is the most likely one.
        """
        starts = range(0, len(prompts), self._rows)
        parts = (self._respond(prompts[at : at + self._rows], generator) for at in starts)
        return [response for part in parts for response in part]

    def _respond(
        self, prompts: Sequence[list[int]], generator: torch.Generator | None
    ) -> list[list[int]]:
        rows = [*prompts, *[prompts[0]] * (self._rows - len(prompts))]
        longest = max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        pad = torch.tensor([longest - len(row) for row in rows])[:, None]
        columns = torch.arange(self._capacity)
        hidden = (columns < pad) | (columns >= longest)
        self._bias.zero_().masked_fill_(hidden[:, None, None, None], -torch.inf)
        later = torch.full((longest, longest), -torch.inf).triu(1)
        first = self._bias[..., :longest] + later
        # A padded place sees itself: a softmax over nothing would give no number.
        first.diagonal(dim1=3, dim2=4).zero_()
        self._predict(ids, (columns[:longest] - pad).clamp(min=0), columns[:longest], first)
        self._drawn.fill_(-1)
        if generator is not None:
            shape = self._drawn.shape
            self._drawn.copy_(torch.rand(shape, generator=generator, device="cpu"))
        self._ended.copy_(torch.arange(self._rows) >= len(prompts))
        self._place.copy_(longest - pad)
        self._column.fill_(longest)
        self._step.zero_()
        for step in range(self.max_tokens):
            seen = -(-(longest + step + 1) // _SEEN) * _SEEN
            if self._graphs:
                self._graphs[seen].replay()
            else:
                self._advance(seen)
            # Looked at seldom: it waits for the device.
            if step % 16 == 15 and bool(self._ended.all()):
                break
        found = self._tokens[: len(prompts), : step + 1].tolist()
        ends = [row.index(self._end) + 1 if self._end in row else len(row) for row in found]
        return [row[:end] for row, end in zip(found, ends, strict=True)]

    def _advance(self, seen: int) -> None:
        """Draw a token for each row, and find the logits of the next; everything in place."""
        drawn = self._drawn.index_select(1, self._step)
        reached = self._logits.softmax(dim=-1).cumsum(dim=-1)
        # Rounding can put the number at the very end.
        at = (reached <= drawn * reached[:, -1:]).sum(dim=-1).clamp(max=reached.shape[1] - 1)
        chosen = torch.where(drawn[:, 0] < 0, self._logits.argmax(dim=-1), at)
        chosen = chosen.masked_fill(self._ended, self._end)
        self._tokens.index_copy_(1, self._step, chosen[:, None])
        self._ended |= chosen == self._end
        self._bias.index_fill_(-1, self._column, 0)
        self._predict(chosen[:, None], self._place, self._column, self._bias[..., :seen])
        for counter in (self._step, self._column, self._place):
            counter += 1

    def _predict(self, ids: Tensor, places: Tensor, columns: Tensor, bias: Tensor) -> None:
        """Find the logits of the next token of each row."""
        for cache in self._caches:
            cache.columns, cache.bias = columns, bias
        self._logits.copy_(self.model.logits(self.model(ids, places, self._caches)[:, -1]))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _captured(self, seen: int) -> Any:
        """Return a CUDA graph of `_advance`."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for counter in (self._step, self._column, self._place):
                counter.zero_()
            self._advance(seen)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._advance(seen)
        return graph
