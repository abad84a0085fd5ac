"""What the policy wrote, in texts and chats as trainers hand them over."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.scoring.responses import (
    after_prompt,
    said_by_policy,
    without_other_turns,
    without_special_tokens,
)
from tests.linear import assert_linear

CHAT = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("query", "prompt", "response"),
    [
        ("2+2=4", "2+2=", "4"), (CHAT + "Four.<|im_end|>", CHAT, "Four.<|im_end|>"),
        ("<pad><pad><s>" + CHAT + "Four.", CHAT, "Four."),  # left padding
        (CHAT.replace("\n", " ") + " Four.", CHAT, "  Four."),  # white space not kept
        ("What is  2 +2 ? Four", "What is 2+2? ", " Four"),
        (CHAT + CHAT + "Four.", CHAT, CHAT + "Four."),  # the policy repeats the prompt
        (CHAT, CHAT, ""), ("anything", "", "anything"),
        ("日本語の問題。答えは四", "日本語の問題。", "答えは四"),
        ("something else", CHAT, None), ("", "x", None),
    ],
)  # fmt: skip
def test_the_response_is_what_follows_the_prompt(
    query: str, prompt: str, response: str | None
) -> None:
    assert after_prompt(query, prompt) == response


@given(st.text(), st.text())
def test_prompt_and_response_come_apart(prompt: str, response: str) -> None:
    assert after_prompt(prompt + response, prompt) == response


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("Answer: 42<|im_end|>", "Answer: 42"),
        ("Answer: 42<|im_end|>\n<|endoftext|><|endoftext|>", "Answer: 42"),
        ("Answer: 42</s>", "Answer: 42"), ("Answer: 42<｜end▁of▁sentence｜>", "Answer: 42"),
        ("Answer: 42<end_of_turn>\n", "Answer: 42"), ("Answer: 42\n", "Answer: 42\n"),
        ("<|im_end|>", ""), ("", ""), ("a <|im_end|> b", "a <|im_end|> b"),
        ("x < y and y |>", "x < y and y |>"), ("<| not one |>", "<| not one |>"),
        ("<|" + "x" * 100 + "|>", "<|" + "x" * 100 + "|>"),
    ],
)  # fmt: skip
def test_special_tokens_at_the_end_are_dropped(response: str, expected: str) -> None:
    assert without_special_tokens(response) == expected


@pytest.mark.parametrize(
    "hostile", ["<|a|>", "<", "|>", " ", "<|a|> ", "a<|", "ab "], ids=lambda text: repr(text)
)
def test_time_is_linear(hostile: str) -> None:
    def read(text: str) -> None:
        without_special_tokens(text)
        after_prompt(text, hostile * 50 + "b")

    assert_linear(read, lambda size: hostile * (size // len(hostile)), 20_000)


def test_a_prompt_is_found_in_little_memory() -> None:
    query, prompt = (f"{'a' * 99}{space}" * 2000 for space in (" ", "  "))
    tracemalloc.start()
    assert after_prompt(query, prompt) == " "
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(query)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("so 4", "so 4"),
        ("", ""),
        ([], ""),
        ([{"role": "assistant", "content": "so 4"}], "so 4"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "so 4"}]}], "so 4"),
        ([{"role": "assistant", "content": None}], ""),
        (
            [{"role": "assistant", "reasoning_content": "1+1=2", "content": "so 4"}],
            "1+1=2\n</think>\nso 4",
        ),
        (
            [
                {"role": "assistant", "thinking": "hm", "content": "", "tool_calls": []},
                {"role": "tool", "content": "the answer is 4"},
                {"role": "assistant", "content": "so 4"},
            ],
            "hm\n</think>\n\nso 4",
        ),
    ],
)
def test_what_the_policy_wrote(completion: Any, text: str) -> None:
    assert said_by_policy(completion) == text


@pytest.mark.parametrize("completion", [None, 7, ["so 4"], {"role": "assistant"}])
def test_what_is_no_completion(completion: Any) -> None:
    with pytest.raises(InputError, match="a completion must be a string or a list of messages"):
        said_by_policy(completion)


@pytest.mark.parametrize(
    ("response", "policy"),
    [
        ("no turns at all, 1 < 2", "no turns at all, 1 < 2"),
        (
            "a<|im_end|>\n<|im_start|>user\n<tool_response>\nT\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\nb<|im_end|>",
            "a<|im_end|>\n\nb<|im_end|>",
        ),
        ("a\nuser\n<tool_response>\nT\n</tool_response>\nassistant\nb", "a\nb"),
        (
            "a<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nT<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>b",
            "a<|eot_id|>\nb",
        ),
        ("a<start_of_turn>user\nT<end_of_turn>\n<start_of_turn>model\nb", "a\nb"),
        ("a<｜tool▁outputs▁begin｜>T<｜tool▁outputs▁end｜>b", "a\nb"),
        ("a[TOOL_RESULTS] T[/TOOL_RESULTS]b", "a\nb"),
        # It ends in a tool's turn; the policy plays a tool, and is not paid for what that says.
        ("a<tool_response>T", "a\n"),
        ("a<|im_start|>tool\nT", "a\n"),
    ],
)
def test_turns_of_others_are_left_out(response: str, policy: str) -> None:
    assert without_other_turns(response) == policy
    assert said_by_policy(response) == policy
