"""Where the answer stands in a response, and what running text around it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.scoring.answers.extract import (
    MAX_ANSWER_CHARS,
    AnswerSource,
    extract_auto,
    extract_boxed,
    extract_boxed_run,
    extract_gsm8k,
    numbers_in_sentence,
    only_number,
)

FAR = " and so on" * 40

# (response, answer as rule auto takes it)
AUTO = [
    # boxes: the last of the whole text, however far from the end
    (r"so \boxed{5}.", "5"), (r"first \boxed{4}, no: $\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
    (r"\boxed{7}" + FAR, "7"), (r"\fbox{7}", "7"), (r"\boxed{1} then \fbox{2}", "2"),
    (r"\boxed 5", "5"), (r"\boxed 5.", "5"), (r"$\boxed 12$ apples", "12"), (r"\boxed {8}", "8"),
    (r"\boxed{\{-1\} \cup [0,7)}.", r"\{-1\} \cup [0,7)"), (r"\boxed{\text{(C)}}", r"\text{(C)}"),
    (r"\boxed{\frac{1}{2}", r"\frac{1}{2}"), (r"thus $\boxed{160", "160"),
    (r"\boxed{42. Next we check", "42"), (r"\boxed{42" + "\nNext we check", "42"),
    (r"\boxed{3} as asked, in \boxed{}", "3"), (r"$\boxed{1}\boxed{2}$", "2"),
    (r"\boxed{1} and \boxed{2} and \boxed{3}", "3"), (r"\(\boxed{1}\) and \(\boxed{-2}\).", "-2"),
    (r"\boxed{6}, that is, \boxed{7}", "7"), (r"**\boxed{5}**" + "\n\n" + r"\boxed{5}", "5"),
    # the others, in order of precedence, within the last 300 characters
    ("Answer: 4\n#### 5", "5"), ("#### 1,234", "1,234"), ("####5", "5"), ("#### $18.00", "$18.00"),
    ("#### Step 2: add\nAnswer: 7", "7"), ("Answer: 7", "7"), ("**Answer:** 7", "7"),
    ("**Answer**: 7", "7"), ("Answer: $7$.", "7"), ("answer : x = 7", "x = 7"), ("ANSWER:\n7", "7"),
    ("Final Answer: The final answer is $(0, 1)$. I hope it is correct.", "(0, 1)"),
    ("The final answer is 12,000,023. I hope it is correct.", "12,000,023"),
    ("The answer is 42 apples, because 40 + 2 = 42", "42"), ("The answer is $3$ and $4$.", "3,4"),
    ("the answer is $28$ %", "28%"), ("A: 45", "45"), ("Q: how many?\nA: 45 apples.", "45 apples"),
    ("The answer is x = 5, because 2x = 10.", "x = 5"), ("Answer: n is 5 since 10/2 = 5", "5"),
    ("The answer is x = 5 (because 2x = 10).", "x = 5"),
    ("**A:** 45", "45"), ("Answer: Evelyn, because she ran far", "Evelyn"),
    ("FINAL ANSWER:\n<answer>\n236\n</answer>", "236"),
    ("<think>…</think><answer>236</answer>", "236"),
    ("所以答案是55。", "55"), ("答案: 12 个", "12"), ("最终答案为：**7**，因为 3+4=7。", "7"),
    ("答案是 $\\frac{1}{3}$。还有 5 个", "\\frac{1}{3}"),
    ("so we get 0.\\overline{3}", "0.\\overline{3}"),
    ("Answer: 0.1\\overline{6} or so", "0.1\\overline{6}"),
    ("So the answer is 42. I hope the answer is correct.", "42"), ("Answer: 7" + FAR, None),
    # what is denied
    ("The answer is not 438", None), ("The answer isn't $438$.", None), ("Answer: not 438", None),
    ("I get 437. The answer is not 438.", "437"), ("The answer is not **438** but 437.", "437"),
    ("The answer is $437$, not $438$.", "437"), ("The answer is neither 3 nor 4", None),
    ("So 437; 438 is not the correct answer.", "437"), ("It cannot be 438.", None),
    ("答案不是438", None), ("答案是437，不是438", "437"), (r"It is not \boxed{438}", None),
    (r"\boxed{437}, not $\boxed{438}$", "437"), ("It is not $5 but $7.", "$7"),
    ("The answer is not in 3 to 5", "5"), ("it is not 3 + 4", "4"), ("the knot 5 here", "5"),
    # Chinese without blanks
    ("所以一共有42个", "42"), ("星期一", "星期一"),
    # a bare answer
    ("12", "12"), (r"x \in [0,1)", r"x \in [0,1)"), ("5 apples", "5 apples"), ("odd", "odd"),
    ("AZYUK2A", "AZYUK2A"),
    # running text
    ("First 3, then 4, so she has 7 left", "7"),
    ("the number is not 10 which is 1,000.99m²", "1,000.99"), ("They earn $5 and $7 each", "$7"),
    ("Therefore $x \\geq 5$ is the solution.", "x \\geq 5"),
    ("we get $4\\sqrt{2}$ in the end", "4\\sqrt{2}"),
    ("the value of $f(x)$ here is 19 at most", "19"),
    ("so that they share \\frac{3}{4} of it", "\\frac{3}{4}"),
    ("it drops to -5 degrees then", "-5"), ("it drops by 3-5 degrees then", "5"),
    ("nothing to see here, we are done with it", None), ("", None), ("   \n", None),
]  # fmt: skip


@pytest.mark.parametrize(("response", "answer"), AUTO)
def test_auto_takes_the_announced_answer(response: str, answer: str | None) -> None:
    found = extract_auto(response)
    assert (None if found is None else found.answer) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("#### 18", "18"), ("#### -1,234.5", "-1,234.5"), ("#### $18.", "18"),
        ("#### 3\n#### 4", "4"), ("####18 apples", "18"), ("#### none", None), ("Answer: 18", None),
        (r"\boxed{18}", None), ("#### 18" + FAR, None),
    ],
)  # fmt: skip
def test_gsm8k_takes_a_number_after_the_mark_only(response: str, answer: str | None) -> None:
    found = extract_gsm8k(response)
    assert (None if found is None else found.answer) == answer


def test_boxes_with_words_between_are_one_list_where_a_list_is_asked_for() -> None:
    response = r"\boxed{(3, 3)} \text{ for part (a) and } \boxed{(1, 1)}"
    alone, run = extract_boxed(response), extract_boxed_run(response)
    assert alone is not None
    assert run is not None
    assert (alone.answer, run.answer) == ("(1, 1)", "(3, 3),(1, 1)")


def test_a_mark_counts_up_to_the_last_300_characters() -> None:
    inside = "Answer: 7 or 8" + "," * (300 - 14)
    found, beyond = extract_auto(inside), extract_auto(inside + ",")
    assert found is not None
    assert beyond is not None
    assert (found.source, beyond.source) == (AnswerSource.MARKER, AnswerSource.PROSE)


def test_an_answer_longer_than_any_real_one_is_overlong() -> None:
    fits, too_long = "x" * MAX_ANSWER_CHARS, "x" * (MAX_ANSWER_CHARS + 20)
    found = extract_boxed(rf"\boxed{{{fits}}}")
    assert found is not None
    assert (found.answer, found.overlong) == (fits, False)
    cut = extract_boxed(rf"\boxed{{{too_long}}}")
    assert cut is not None
    assert cut.overlong
    assert len(cut.answer) <= MAX_ANSWER_CHARS


@given(st.text(max_size=400), st.sampled_from(["", "\\boxed{", "####", "Answer: ", "$"]))
def test_any_text_is_read(noise: str, mark: str) -> None:
    for response in (noise + mark + noise, noise + mark):
        for find in (extract_auto, extract_boxed, extract_gsm8k):
            found = find(response)
            assert found is None or len(found.answer) <= MAX_ANSWER_CHARS


# (text, its numbers)
STATED = [
    ("Jim is 8 years old", ["8"]), ("4 blue shoeboxes and 6 red shoeboxes", ["4", "6"]),
    ("it lies between 23 and 24", ["23", "24"]), ("Answer: Not enough information.", []),
    ("Ann's total was $1,234.50 then.", ["$1,234.50"]), ("The temperature fell -5 degrees", ["-5"]),
]  # fmt: skip
NOT_STATED = [
    # signs and functions
    "10^2 square meters", "2π square units", "36π cubic inches", "sqrt(16) square units",
    "2*sqrt(3) square units", "5! total ways", "3×10^5 km per second", "√16 square units",
    "3 + 4 apples total", "1/2 of the pie", "x = 5 total apples", "5² square meters",
    r"5\pi square units", "(about) 5 apples", "log 100 plus nothing", "between 3-4 apples",
    # digits that touch letters
    "1e6 meters away", "3 to the 5th power", "the 3rd place", "5m tall poles", "x2 total apples",
    # words that are numbers or change them
    "minus 5 degrees celsius", "negative 5 apples", "5 squared apples total", "2 cubed apples",
    "3 dozen eggs total", "5 million dollars total", "half of the apples", "5 percent of them",
    "twenty apples total", "root 16 apples", "2 pi square units", "a third of them",
    "5 below the freezing point", "twenty-five apples total", "infinity is the answer",
    # two numbers that are one quantity
    "1 hour and 30 minutes", "5 feet 3 inches", "1 out of 3 people", "2 dollars and 50 cents",
    "3 to 1 odds against them",
    # no sentence
    "5", "5 apples", "no", "x+y",
]  # fmt: skip


@pytest.mark.parametrize(("text", "numbers"), STATED)
def test_reads_the_numbers_of_a_plain_sentence(text: str, numbers: list[str]) -> None:
    assert numbers_in_sentence(text) == numbers


@pytest.mark.parametrize("text", NOT_STATED)
def test_reads_no_number_that_something_may_change(text: str) -> None:
    assert numbers_in_sentence(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Ann is 24", "24"), (r"Ann pays \$24 then", "$24"),
        ("The temperature is minus 5 degrees", None), ("The area is sqrt(16) square units", None),
        ("Ann has 3 dozen eggs", None), ("Ann came in 3rd of them all", None),
        ("between 23 and 24", None), ("24", None),
    ],
)  # fmt: skip
def test_reads_the_only_number_of_a_plain_text(text: str, number: str | None) -> None:
    assert only_number(text) == number
