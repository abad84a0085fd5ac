"""The text of a problem: when two texts are one problem, and the prompt that it is put in.

Public math sets hold one problem under many ids, typed by different hands: ``$x+1$`` here,
``\\( x + 1 \\)`` there.  Two keys decide whether texts are the same.

:func:`text_key` ignores typesetting and nothing else: white space (other
than between two letters or digits), LaTeX's spacing commands, the delimiters of math
(``$``, ``\\(``, ``\\[``), ``\\left`` and ``\\right``, ``\\dfrac`` and ``\\tfrac``, typographic
quotation marks.  Equal keys are one problem: of two, one is dropped, and two answers are a
conflict.

:func:`rough_key` ignores all but letters, digits and signs of operations and relations, and
the case of letters.  It is used for leakage alone, where a problem too many that is kept from
training costs little and one too few spoils a benchmark.

Not covered: other wordings, other variable names, translations.
"""

from __future__ import annotations

import hashlib
import re

# Each pattern begins with one of few characters, so that it is looked for at those alone.  A line
# break of LaTeX is read first, so that what follows it makes no spacing command of its second half.
_TYPESETTING = re.compile(
    r"""[$~]
    | \\(?: (?P<kept>\\)
        | (?P<frac>[dt]frac)(?![A-Za-z])
        | (?:left|right|displaystyle|quad|qquad|thinspace)(?![A-Za-z])
        | [,;:!>\s()\[\]$]
    )""",
    re.VERBOSE,
)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_LOOSE_SPACE = re.compile(r" (?:(?<![^\W_] )|(?![^\W_]))")
_NEITHER_WORD_NOR_SIGN = re.compile(r"(?:[^\w+\-*/=<>^!|%]|_)+")


def text_key(text: str) -> str:
    """Return the text of a problem without its typesetting; linear in its length."""
    plain = " ".join(_TYPESETTING.sub(_plainly, text.translate(_QUOTES)).split())
    return _LOOSE_SPACE.sub("", plain)


def rough_key(key: str) -> str:
    """Return the coarser key of a :func:`text_key`; that key itself where nothing is left."""
    return _NEITHER_WORD_NOR_SIGN.sub("", key).lower() or key


def digest(text: str) -> bytes:
    """Return a digest of a text, 16 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plainly(found: re.Match[str]) -> str:
    if found["kept"]:
        return r"\\"
    return r"\frac" if found["frac"] else " "


# The paper's appendix, "Prompt for Question Answering", which took it from DAPO-Math-17k.  The
# reward's answer rule ``dapo`` looks for exactly the ``Answer:`` line that it asks for: another
# prompt needs another rule.
BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
)
AFTER = 'Remember to put your answer on its own line after "Answer:".'

# What verl's preprocessing of GSM8K and MATH puts behind a problem, and Qwen's own wording.
ENDINGS = (
    'Let\'s think step by step and output the final answer after "####".',
    r"Let's think step by step and output the final answer within \boxed{}.",
    r"Please reason step by step, and put your final answer within \boxed{}.",
)


def with_prompt(problem: str) -> str:
    """Return a problem's text inside the paper's prompt.

    A text that is in the prompt already, as in training copies of DAPO-Math-17k, is returned as it
    is.

    Args:
        problem: the text of the problem; white space around it is dropped.
    """
    text = problem.strip()
    if text.startswith(BEFORE) and text.endswith(AFTER):
        return text
    # Joined, not formatted: a problem is full of braces.
    return f"{BEFORE}\n\n{text}\n\n{AFTER}"


def without_prompt(text: str) -> str:
    """Return the text of a problem without the paper's prompt, or verl's, if it is in it."""
    text = text.strip()
    if text.startswith(BEFORE) and text.endswith(AFTER):
        return text[len(BEFORE) : len(text) - len(AFTER)].strip()
    for ending in ENDINGS:
        if text.endswith(ending):
            return text.removesuffix(ending).strip()
    return text
