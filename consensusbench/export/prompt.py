"""The prompt that a problem is put to a policy with.

Quoted from the paper's appendix, "Prompt for Question Answering", which took it from
DAPO-Math-17k.  The reward's answer rule ``dapo`` looks for exactly the ``Answer:`` line that
it asks for: another prompt needs another rule.
"""

from __future__ import annotations

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
)
AFTER = 'Remember to put your answer on its own line after "Answer:".'


def with_prompt(problem: str) -> str:
    """Return a problem's text inside the paper's prompt.

    A text that stands in it already, as in copies of DAPO-Math-17k that were made for
    training, is returned without a second one.

    Args:
        problem: the text of the problem; white space around it is dropped.
    """
    text = problem.strip()
    if text.startswith(BEFORE) and text.endswith(AFTER):
        return text
    # Joined, not formatted: a problem is full of braces.
    return f"{BEFORE}\n\n{text}\n\n{AFTER}"


def without_prompt(text: str) -> str:
    """Return the text of the problem that stands in the paper's prompt.

    A text that does not stand in it is returned as it is, but for white space around it.
    """
    text = text.strip()
    if text.startswith(BEFORE) and text.endswith(AFTER):
        return text[len(BEFORE) : len(text) - len(AFTER)].strip()
    return text
