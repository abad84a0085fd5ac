"""The model to start from: a tokenizer, a Llama of 0.2 million weights, and its supervised phase.

Each digit, sign, word and line break is a token.  The model is made the way any Hugging Face model
is saved, so verl loads it like one; its size is what a CPU trains at seconds a step.

Reinforcement learning cannot begin at a model that never writes the form.  The teacher of the
supervised phase is right at first and errs on purpose in the end: each result is then wrong with
some probability, and the solution goes on from the wrong one.  So the model learns the form and
most of the arithmetic, and is right in a step often and in a whole chain seldom, which is where the
rewards differ: the outcome is sparse, the covered nodes are not.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .problems import SIGNS, Chain, Task, calculate, draw_chains, solution

PAD, END, USER, ASSISTANT, UNKNOWN = "<pad>", "<end>", "<user>", "<assistant>", "<unknown>"
WORDS = ["start", "with", "Answer", *SIGNS]
OPENING = ["start", "with", "Answer"]
MARKS = ["=", ";", ":", " ", "\n", *SIGNS.values()]

# A message of the user, or of a tool, and a mark after which the model writes.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] in ('user', 'tool') %}<user>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer(
    words: Sequence[str] = (*string.digits, *MARKS, *WORDS), pattern: str = r"[A-Za-z]+|[\s\S]"
) -> PreTrainedTokenizerFast:
    """Return the tokenizer; it decodes what it encodes.

    Args:
        words: Its vocabulary, beside the marks of the chat.
        pattern: What is one token of a text; what is no word of the vocabulary is unknown.
    """
    all_words = [PAD, END, USER, ASSISTANT, UNKNOWN, *words]
    model = WordLevel({word: n for n, word in enumerate(all_words)}, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """Return an untrained model; its weights follow from the seed."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write model and tokenizer as `from_pretrained` reads them."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


LEARNING_RATE = 3e-3

# Part of the phase in which the teacher is right: arithmetic is learned from wrong solutions, too,
# but several times more slowly.
SOUND_PART = 0.75


def flawed_solution(
    chain: Chain, rng: random.Random, error_rate: float, *, largest: int, varied: bool = False
) -> str:
    """Return a solution whose every step is wrong with probability `error_rate`.

    Args:
        chain: The problem.
        rng: Decides.
        error_rate: In [0, 1].
        largest: Number that a wrong result may be.
        varied: Write the operands of a sum or a product in either order, below some words.
    """
    left = chain.steps[0].left
    equations = []
    for step in chain.steps:
        result = calculate(left, step.word, step.right)
        if rng.random() < error_rate:
            result = rng.choice([number for number in range(2, largest + 1) if number != result])
        operands = [left, step.right]
        if varied and step.word != "minus" and rng.random() < 0.5:
            operands.reverse()
        equations.append(f"{operands[0]}{SIGNS[step.word]}{operands[1]}={result}")
        left = result
    if varied:
        equations.insert(0, " ".join(rng.choices(OPENING, k=3)))
    return solution(equations, str(left))


def warm_up(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    task: Task,
    steps: int,
    batch: int,
    error_rate: float,
    varied: bool,
    seed: int,
    avoid: set[str],
    report: Callable[[int], None],
) -> None:
    """Train the model to imitate the flawed teacher, in one thread of torch from here on.

    A batch is so small that several threads gain nothing, and on a busy machine lose most of the
    time over waiting for each other.

    Args:
        model: The model, trained in place.
        tokenizer: Its tokenizer.
        task: How hard its problems are.
        steps: Updates.
        batch: Solutions in each.
        error_rate: Probability that the teacher errs in a step in the end, in [0, 1].
        varied: Whether the teacher writes a solution in several ways.
        seed: Where problems and errors start.
        avoid: Texts of problems that are kept for validation.
        report: Called with the number of updates done.
    """
    torch.set_num_threads(1)
    rng = random.Random(seed)
    torch.manual_seed(seed)
    chains = draw_chains(seed, task, avoid=avoid)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for number in range(1, steps + 1):
        rate = 0.0 if number <= SOUND_PART * steps else error_rate
        pairs = [
            (
                chain.text,
                flawed_solution(chain, rng, rate, largest=task.largest, varied=varied),
            )
            for chain in islice(chains, batch)
        ]
        ids, labels = _encode(pairs, tokenizer)
        mask = ids != tokenizer.pad_token_id
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        report(number)
    model.eval()


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
