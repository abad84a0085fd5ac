"""Where in a response the answer stands, rule by rule.

``auto`` takes the last ``\\boxed{…}`` of the whole response, else what follows the last
``####``, else what follows the last ``Answer:`` / ``A:`` / "answer is" / ``<answer>`` / 答案, else
the response itself where it is a bare answer, else the last number or formula.  Each but
the first must lie in the last 300 characters.

The box is found by a backward substring search; nothing else looks at more than the tail,
and no regular expression runs before the text is clipped.  In running text dollar signs enclose
formulas and stand before amounts of money: a pair of them is a formula only if no prose stands
between.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

# Published answers stay below 600 characters (matrices); what is longer is not compared.
MAX_ANSWER_CHARS = 1000
# verl and others clip here; the longest answer in MATH-500 has 159 characters.
TAIL_CHARS = 300
# How far back of the last box its neighbours are looked for.
_RUN_CHARS = 700
_MAX_EMPTY_BOXES = 8
_MAX_RUN = 32


class AnswerSource(StrEnum):
    """By which mark an answer was found."""

    BOXED = "boxed"
    HASH = "hash"
    MARKER = "marker"
    BARE = "bare"
    PROSE = "prose"


class Extracted(NamedTuple):
    """An answer and the mark that announced it."""

    answer: str
    source: AnswerSource
    overlong: bool = False  # it exceeds MAX_ANSWER_CHARS and was cut
    context: str = ""  # where its number stands if a mark announces words alone


# Answer: and "answer is", also in Chinese, or A: at the start of a line.
_MARK = re.compile(
    r"[Aa](?:[ \t*]*[:：]"
    r"|(?i:nswers?)(?:(?<=(?i:<answer))>|\s*+(?:\*\*|__|\}|_)?\s*+(?:[:：]|(?i:is|are)\b\s*:?)))"
    r"|答案[ \t*]{0,8}(?:[:：]|[是为](?:[ \t*]{0,8}[:：])?)"
)
# The answer is not 5; it isn't $5$; 5 is not the answer.
_DENYING = ("not", "NOT", "nor", "neither", "n't", "n’t", "不是", "并非")
_NOT = r"(?:\b(?:not|NOT|nor|neither|cannot)\b|n['’]t\b|不是|并非)\s*(?:be |equal(?: to)? )?"
_NUMBER_DENIED = (
    r"(?<![\d.,])[-−]?\$?(?:\d{1,40}(?:,\d{3}){0,9}(?:\.\d{1,40})?(?:/\d{1,40})?|\.\d{1,40})%?"
    r"(?![\w$]|[.,]\d|\s?(?:[-+/^=\\]|\*(?!\*)))"
)
_DENIED = re.compile(
    rf"{_NOT}\**(?:{_NUMBER_DENIED}|\$[^$\n]{{1,80}}\$|\\\([^\n]{{1,80}}?\\\)|\\boxed\{{[^{{}}]*\}})"
)
_DENIED_BEFORE = re.compile(
    rf"{_NUMBER_DENIED} (?:is not|isn['’]t) (?:the|our) (?:final |correct |right )?answer"
)
_DENIES = re.compile(rf"{_NOT}(?:\$\$?|\\\(|\\\[)?\s*\Z")
_DENIAL_CHARS = 32
_WORDS_ALONE = re.compile(r"[^\d\\]*[^\W\d_]{2}[^\d\\]*")
_MATHEMATICAL = re.compile(r"[0-9\\=<>{}()\[\]]")
_ADJACENT = re.compile(
    r"(?:[\s$,;.&~]|\\[()\[\],;!: ]|\\q?quad\b|\band\b|\bor\b"
    r"|\\(?:text|mbox|textbf|mathrm)\s*\{\s*,?\s*(?:and|or)?\s*,?\s*\})*+"
)
_SEPARATOR = re.compile(r"\b(?:and|or)\b|,|;")
_TOKEN_STOP = re.compile(r"[\s$,;]|\\[)\]]|\.(?!\d)")
_UNCLOSED_STOP = re.compile(r"[\n$]|\\[)\]]|\.\s")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_auto(response: str) -> Extracted | None:
    """Find the answer as rule ``auto`` does; None if there is none."""
    found = extract_marked(response)
    if found is not None:
        return found
    tail = tail_of(response)
    if tail == response and is_bare(response):
        return _found(response, AnswerSource.BARE)
    answer = answer_in_prose(tail)
    return None if answer is None else _found(answer, AnswerSource.PROSE)


def extract_marked(response: str) -> Extracted | None:
    """Find the answer that a mark announces, as rule ``auto`` does; None without a mark."""
    found = extract_boxed(response)
    if found is not None:
        return found
    tail = tail_of(response)
    return _after_hash(tail) or _after_marker(tail)


def tail_of(response: str) -> str:
    """Return the last characters of a response, without values that it denies to be the answer."""
    tail = response[-TAIL_CHARS:]
    if any(word in tail for word in _DENYING):
        tail = _DENIED_BEFORE.sub("", _DENIED.sub("", tail))
    return tail


def extract_gsm8k(response: str) -> Extracted | None:
    """Find the number after the last ``####`` of the last 300 characters."""
    tail = response[-TAIL_CHARS:]
    position = tail.rfind("####")
    if position < 0:
        return None
    number = _HASH_NUMBER.match(tail, position + 4)
    return None if number is None else _found(number[1].rstrip(".,"), AnswerSource.HASH)


_HASH_NUMBER = re.compile(r"[ \t]*\$?[ \t]*(-?[ \t]*\$?[0-9.,]*[0-9][0-9.,]*)")


def extract_boxed(response: str) -> Extracted | None:
    """Find the last box that holds something.

    Understands ``\\boxed`` and ``\\fbox``, ``\\boxed 5``, and a box that the end of the
    response left open.
    """
    end = len(response)
    for _ in range(_MAX_EMPTY_BOXES):
        start = _last_box(response, end)
        if start < 0:
            return None
        window, offset = _window(response, start)
        content = _box_content(window, offset)
        if content is None:
            return Extracted(window[offset : offset + MAX_ANSWER_CHARS], AnswerSource.BOXED, True)
        text, _ = content
        if text.strip() and not _DENIES.search(window, max(0, offset - _DENIAL_CHARS), offset):
            return _found(text, AnswerSource.BOXED)
        end = start
    return None


def extract_boxed_run(response: str) -> Extracted | None:
    """Find the last boxes as one list, side by side or with a few words between them.

    For ground truths that are lists: ``\\boxed{(3,3)} for part (a) and \\boxed{(1,1)}``.
    """
    start = _last_box(response, len(response))
    if start < 0:
        return None
    window, offset = _window(response, start)
    content = _box_content(window, offset)
    if content is None:
        return None
    run = _run(window, offset, content[0])
    return _found(",".join(run), AnswerSource.BOXED) if len(run) > 1 else None


def reference_answer(ground_truth: str) -> str:
    """Return the reference answer inside what a dataset gives as ground truth.

    Most datasets give the bare answer; some a sentence with a box, some a whole solution
    that ends with ``#### 18``.
    """
    found = None
    if "\\boxed" in ground_truth or "\\fbox" in ground_truth:
        found = extract_boxed_run(ground_truth) or extract_boxed(ground_truth)
    elif "####" in ground_truth:
        found = extract_gsm8k(ground_truth)
    return (ground_truth if found is None else found.answer).strip()


def _found(answer: str, source: AnswerSource, context: str = "") -> Extracted:
    answer = answer.strip()
    return Extracted(answer[:MAX_ANSWER_CHARS], source, len(answer) > MAX_ANSWER_CHARS, context)


def _last_box(response: str, end: int) -> int:
    """Return the position of the last ``\\boxed`` or ``\\fbox`` before ``end``, else -1."""
    boxed = response.rfind("\\boxed", 0, end)
    return max(boxed, response.rfind("\\fbox", max(boxed, 0), end))


def closing_brace(text: str) -> int:
    """Return where the brace closes that stands open at the start, the length if nowhere."""
    close, closed = text.find("}"), 1
    while close >= 0 and text.count("{", 0, close) >= closed:
        close, closed = text.find("}", close + 1), closed + 1
    return close if close >= 0 else len(text)


def _window(response: str, start: int) -> tuple[str, int]:
    """Return the text around a box and the position of the box in it."""
    first = max(0, start - _RUN_CHARS)
    return response[first : start + MAX_ANSWER_CHARS + 16], start - first


def _box_content(window: str, box: int) -> tuple[str, int] | None:
    """Return what the box at ``box`` holds and where it ends; None if it is overlong."""
    position = box + (6 if window.startswith("\\boxed", box) else 5)
    end = len(window)
    while position < end and window[position] in " \t\n*":
        position += 1
    if position == end:
        return "", end
    if window[position] != "{":
        stop = _TOKEN_STOP.search(window, position)
        last = stop.start() if stop is not None else end
        return window[position:last], last
    depth = 0
    for found in _BRACE.finditer(window, position):
        depth += (found[0] == "{") - (found[0] == "}")
        if depth == 0 and found[0] == "}":
            return window[position + 1 : found.start()], found.end()
    if end - box >= MAX_ANSWER_CHARS + 16:
        return None
    stop = _UNCLOSED_STOP.search(window, position)
    last = stop.start() if stop is not None else end
    return window[position + 1 : last], last


def _run(window: str, box: int, content: str) -> list[str]:
    """Collect the boxes that lead up to the one at ``box``, in order of reading.

    Nothing but separators stands between them, or up to 70 characters with a separator
    among them.  A box repeated is the same box.
    """
    contents = [content.strip()]
    for _ in range(_MAX_RUN):
        previous = _last_box(window, box)
        if previous < 0:
            break
        found = _box_content(window[:box], previous)
        if found is None or not found[0].strip():
            break
        between = window[found[1] : box]
        adjacent = _ADJACENT.fullmatch(between) is not None
        near = len(between) < 70 and _SEPARATOR.search(between) is not None
        if not (adjacent or near):
            break
        if found[0].strip() != contents[-1]:
            contents.append(found[0].strip())
        box = previous
    contents.reverse()
    return contents


def _after_hash(tail: str) -> Extracted | None:
    position = tail.rfind("####")
    if position < 0:
        return None
    line = tail[position + 4 :].lstrip("#").partition("\n")[0]
    answer = leading_answer(line, strict=True)
    return None if answer is None else _found(answer, AnswerSource.HASH)


def _after_marker(tail: str) -> Extracted | None:
    """Take the last marker that announces something.

    "The answer is" of prose also announces what is no answer ("the answer is clear"): there
    an earlier one that announces something mathematical counts.  "Answer:" always counts, also
    with words alone behind it: "Answer: I do not know" is not the number before it.
    """
    fallback = None
    for mark in reversed(list(_MARK.finditer(tail))):
        # In one case, or at the start of a line.
        if mark[0][1:6] not in ("nswer", "NSWER") and not (
            mark[0][0] == "答"
            or (mark[0][0] == "A" and tail[: mark.start()].rstrip(" \t*")[-1:] in ("", "\n", ">"))
        ):
            continue
        behind = tail[mark.end() :]
        answer = leading_answer(behind, strict=False)
        formal = mark[0].rstrip()[-1] in ":：" and fallback is None
        if answer is None and formal and _WORDS_ALONE.fullmatch(behind):
            answer = None if behind.strip(" .!*\n").casefold() in _NO_ANSWERS else behind
        if answer is None:
            continue
        if formal or len(answer) == 1 or _MATHEMATICAL.search(answer):
            return _found(answer, AnswerSource.MARKER, behind)
        fallback = fallback or answer
    if fallback is None:
        return None
    return _found(fallback, AnswerSource.MARKER, tail)


# Answers inside running text of at most a few hundred characters.

# An amount, a fraction or a mixed number, not glued to a word on its left.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\\])(?:(?<![0-9)\]}])[-−])?\$?"
    r"(?:\d+\s+\d+/\d+|(?:\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+(?![\d.]))?|\.\d+)"
    r"(?:\s?\\?%)?"
)
# Longer than any number with its sign, marks and unit: where the search begins.
_NUMBER_CHARS = 40
# A fraction, or a repeating decimal, which is not its first digits.
_FRACTION = re.compile(
    r"-?\s?\\[dtc]?frac\s?\{-?\d[\d.,]*\}\s?\{\d[\d.,]*\}"
    r"|-?\d{1,40}\.\d{0,40}\\(?:overline|bar)\s?\{\d{1,40}\}"
)
_NUMBER_ALONE = re.compile(r"[\s*]*(-?\d+(?:\.\d+)?)[\s*]*(?:\.\s*|</[A-Za-z]+>\s*)?\Z")
_DELIMITER = re.compile(r"\$\$|(?<!\\)\$|\\\(|\\\)|\\\[|\\\]")
# A formula that was opened and never closed; a dollar sign may be an amount.
_OPENING = re.compile(r"\A(?:\$\$|\\\(|\\\[)\s*")
_PAIRS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_COMMAND_OR_TEXT = re.compile(
    r"\\(?:text|mbox|textbf|mathrm|textnormal|mathbf|operatorname|begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+"
)
# Two letters may be a product (ab); the common short words of prose are none.
_WORD = re.compile(
    r"[A-Za-z]{3,}|\b(?:is|of|to|in|on|at|an|as|by|it|he|we|so|if|be|my|us|do|am|The|No|no)\b"
)
_MATH_WORDS = frozenset(
    "sin cos tan cot sec csc log ln exp sqrt pi mod and or max min gcd lcm lim det inf infinity "
    "frac percent pct boxed".split()
)
_MATH_SIGN = re.compile(r"[0-9=+*/^<>\\_|{}\[\]]")
_MAX_UNIT_WORDS = 3
_MAX_TEXT_WORDS = 4
_SENTENCE_WORDS = 2
# What a sentence consists of that only states numbers: no signs, brackets or 3rd.
_PLAIN_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
_PLAIN_NUMBER = re.compile(
    r"-?\$?(?:(?:\d{1,3}(?:,\d{3})+|\d{1,400})(?:\.\d{1,400})?|\.\d{1,400})%?"
)
_TEXT_WRAPPER = re.compile(
    r"\\(?:text|mbox|textbf|mathrm|textnormal|mathbf)\s*\{|\\[ ,;:]|\}|\*\*|="
)
_LETTERS = re.compile(r"[a-z]+")
# Words that change the number beside them.
_OPERATIONS = frozenset(
    "minus negative plus times squared cubed factorial root sqrt pi power powers exponent half "
    "halves twice double triple thrice divided multiplied infinity infinite dozen dozens hundred "
    "hundreds thousand thousands million millions billion billions trillion trillions".split()
)
# Words that are numbers or parts themselves.
_NUMBER_WORDS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety once single pair pairs couple percent percentage pct third thirds fourth fourths "
    "quarter quarters fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths "
    "tenth tenths hundredth hundredths thousandth thousandths log ln exp sin cos tan mod over "
    "above below".split()
)
# Words that make one quantity of two numbers: 1 out of 3, 5 feet 3 inches.
_JOINING = frozenset(
    "out in to by of per every each against versus hour hours minute minutes min mins second "
    "seconds sec secs day days week weeks month months year years foot feet ft inch inches yard "
    "yards mile miles meter meters metre metres centimeter centimeters centimetre centimetres "
    "kilometer kilometers kilometre kilometres cm mm km kg pound pounds lb lbs ounce ounces oz "
    "gram grams kilogram kilograms ton tons liter liters litre litres gallon gallons quart quarts "
    "pint pints cup cups degree degrees dollar dollars cent cents euro euros remainder".split()
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n|<\||</|[。，；！？]")
_IDEOGRAPH = re.compile("[\u4e00-\u9fff]")
_CLAUSE_END = re.compile(r"[,;:(]| because | since | as ")
# What a reason states is not the answer: x = 5, because 2x = 10.
_REASON = re.compile(r"[\s,(]*+\b(?:because|since)\b")
# "I hope the answer is correct" announces nothing.
_NO_ANSWERS = frozenset(["correct", "right", "wrong", "as follows", "the following", "not", "in"])
_CONNECTOR = re.compile(r"\s*(?:,?\s*(?:and|or)\b|,|;)\s*")
_LEADING_MARKS = " \t\r\n*_`:>：~"
_TAG = re.compile(r"</?[A-Za-z]+>")
_SYMBOL_ONLY = re.compile(r"\s*\\?[A-Za-z]{1,8}(?:_\{?\w{1,3}\}?)?(?:\([a-z]\))?\s*")
_GOES_ON = re.compile(r"\s*(?:=|is\b|are\b)")


def is_bare(text: str) -> bool:
    """Return whether ``text`` is an answer and nothing else: a formula, number or few words."""
    text = text.strip()
    if not text or "\n\n" in text:
        return False
    if _IDEOGRAPH.search(text) and any(map(str.isdigit, text)):
        return False  # a sentence without blanks
    words = _words(text)
    if not words or len(text.split(maxsplit=1)) == 1:
        return True
    plain = _COMMAND_OR_TEXT.sub(" ", text)
    if _MATH_SIGN.search(plain) is None:
        return len(words) <= _MAX_TEXT_WORDS
    number = _NUMBER.match(plain.lstrip("$ "))
    if number is not None and len(words) <= _MAX_UNIT_WORDS:
        rest = plain.lstrip("$ ")[number.end() :]
        return not any(character.isdigit() or character in "=+*/" for character in rest)
    return False


def leading_answer(text: str, *, strict: bool) -> str | None:
    """Return the answer with which ``text`` begins, as after a marker.

    Args:
        text: what follows the marker.
        strict: only a bare answer or a leading number or formula counts; else, as a last
            resort, the last number or formula of the first sentence does.
    """
    number = _NUMBER_ALONE.match(text)
    if number is not None:
        return number[1]
    text = (_TAG.sub(" ", text) if "<" in text else text).lstrip(_LEADING_MARKS)
    if not text:
        return None
    formula = _leading_formula(text)
    if formula is not None:
        return formula
    text = _OPENING.sub("", text)
    stop = _SENTENCE_END.search(text)
    sentence = text[: stop.start()].strip() if stop is not None else text
    if sentence.casefold() in _NO_ANSWERS:
        return None
    if _IDEOGRAPH.search(sentence) and (number := _NUMBER.match(sentence)) is not None:
        return number[0]  # 12 个
    if is_bare(sentence):
        return sentence.rstrip("*_` ")
    number = _FRACTION.match(sentence) or _NUMBER.match(sentence)
    if number is not None:
        return number[0]
    said, *reason = _REASON.split(sentence, maxsplit=1)
    if reason and "=" in said and is_bare(said):
        return said.strip()
    if strict:
        return None
    clause = _CLAUSE_END.split(sentence, maxsplit=1)[0]
    return answer_in_prose(sentence) or (clause if is_bare(clause) else None)


def answer_in_prose(text: str) -> str | None:
    """Return the last number or formula of ``text``, None if there is neither."""
    number = _last_number(text)
    formula = _last_formula(text) if "$" in text or "\\" in text else None
    if formula is not None:
        start, end, content = formula
        if number is None or start <= number.start() < end:
            return content
        if number.end() <= start and not _SYMBOL_ONLY.fullmatch(content):
            return content
    if number is None:
        return None
    for fraction in _FRACTION.finditer(text):
        if fraction.start() < number.start() < fraction.end():
            return fraction[0]
    return number[0]


def only_number(text: str) -> str | None:
    """Return the number of a text that has words around exactly one, as "Ann is 24"."""
    if is_bare(text):
        return None
    plain = _TEXT_WRAPPER.sub(" ", text.replace("\\$", "$").replace("\\%", "%"))
    statement = _plain_statement(plain)
    if statement is None:
        return None
    numbers, words = statement
    return numbers[0] if len(numbers) == 1 and not words & _OPERATIONS else None


def numbers_in_sentence(text: str) -> list[str] | None:
    """Return the numbers of a sentence that names nothing but them.

    None where ``text`` may be a formula or one word, where words or signs change a number or
    are one, and where two numbers may be one quantity.
    """
    statement = _plain_statement(text) if len(_words(text)) >= _SENTENCE_WORDS else None
    if statement is None:
        return None
    numbers, words = statement
    if words & _OPERATIONS or words & _NUMBER_WORDS or (len(numbers) > 1 and words & _JOINING):
        return None
    return numbers


def _plain_statement(text: str) -> tuple[list[str], set[str]] | None:
    """Return numbers and small words of a text of plain words and numbers, else None."""
    numbers: list[str] = []
    words: set[str] = set()
    for piece in text.split():
        token = piece.lstrip("\"'").rstrip(",.;:?\"'")
        if _PLAIN_NUMBER.fullmatch(token):
            numbers.append(token)
        elif _PLAIN_WORD.fullmatch(token):
            words.update(_LETTERS.findall(token.lower()))
        elif token:
            return None
    return numbers, words


def _last_number(text: str) -> re.Match[str] | None:
    last_digit = max(map(text.rfind, "0123456789"))
    if last_digit < 0:
        return None
    for back in (_NUMBER_CHARS, len(text)):
        found = list(_NUMBER.finditer(text, max(0, last_digit - back)))
        if found:
            return found[-1]
    return None


def _leading_formula(text: str) -> str | None:
    """Return the formula at the start, joined with those that ``and`` or a comma connect."""
    contents = []
    position = 0
    while True:
        found = _formula_at(text, position)
        if found is None:
            break
        content, position = found
        contents.append(content)
        connector = _CONNECTOR.match(text, position)
        if connector is None:
            break
        position = connector.end()
    if not contents:
        return None
    if (
        len(contents) == 1
        and _SYMBOL_ONLY.fullmatch(contents[0])
        and _GOES_ON.match(text, position)
    ):
        return None
    rest = text[position : position + 12].lstrip()
    percent = "%" if rest.startswith(("%", "\\%", "percent", "pct")) else ""
    return ",".join(contents) + percent


def _formula_at(text: str, position: int) -> tuple[str, int] | None:
    """Return the content of the delimited formula at ``position`` and where it ends."""
    opening = _DELIMITER.match(text, position)
    if opening is None or opening[0] not in _PAIRS:
        return None
    closing = text.find(_PAIRS[opening[0]], opening.end())
    if closing < 0 or _is_amount(text, closing + 1):
        return None
    content = text[opening.end() : closing]
    if not _is_formula(content):
        return None
    return content.strip(), closing + len(_PAIRS[opening[0]])


def _last_formula(text: str) -> tuple[int, int, str] | None:
    """Return start, end and content of the last delimited formula.

    Read from the end, because clipping may have cut the first delimiter off.
    """
    marks = list(_DELIMITER.finditer(text))
    for index in range(len(marks) - 1, 0, -1):
        closing, opening = marks[index], marks[index - 1]
        if _PAIRS.get(opening[0]) != closing[0] or _is_amount(text, closing.end()):
            continue
        content = text[opening.end() : closing.start()]
        if _is_formula(content):
            return opening.start(), closing.end(), content.strip()
    return None


def _is_amount(text: str, position: int) -> bool:
    """Return whether the dollar sign before ``position`` belongs to a number behind it."""
    return text[position : position + 1].isdigit() and text[position - 1] == "$"


def _is_formula(content: str) -> bool:
    if not content.strip() or "\n\n" in content:
        return False
    return not _words(content) or is_bare(content)


def _words(text: str) -> list[str]:
    plain = _COMMAND_OR_TEXT.sub(" ", text)
    return [word for word in _WORD.findall(plain) if word.lower() not in _MATH_WORDS]
