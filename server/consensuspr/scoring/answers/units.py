"""Words around a number: units, percent, million, thousands marks, and, or, a.m. and p.m.

Works on single-spaced text of one answer.  A unit is dropped, as the ground truths of most
datasets drop it; whether it is the right one is not checked.
"""

from __future__ import annotations

import re

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?%?")
_SPACED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?")
_AND_OR = re.compile(r",? ?(?<![A-Za-z\\])(?:and|or|AND|OR)(?![A-Za-z]) ?,?")
_PERCENT_WORD = re.compile(
    r"(?<=[0-9}) ])(?:percent|per cent|pct|percentage)\b\.?\Z", re.IGNORECASE
)

# Words behind a number that change its value or its kind.
_NO_UNIT = (
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|mod|gcd|lcm|max|min|pi|and|or|over|choose"
    r"|million|billion|trillion|thousand|hundred|to|times|plus|minus|if|for|when|where|is"
    r"|AM|PM|am|pm)\b)"
)
# What is no unit right behind a number: 5 squared, but 5 inches squared.
_NO_OPERATION = r"(?!(?:squared|cubed|factorial|(?:st|nd|rd|th) (?:power|root))\b)"
# Few letters behind a number are a product, as in 2ab, unless they are the sign of a unit; in
# both cases they are one: kJ, Mb.
_NO_LETTERS = (
    r"(?!(?!(?i:[cmkdn]m|[mkc]g|gr|lbs?|oz|ft|in|yds?|mi|ha|ly|au|hrs?|[kmg]?hz|[mcdk]l|cc|[km][wva]"
    r"|pa|k?wh|[kmgt]bs?|kj|ev|db|[mn]s|mph|kph|kmh|rpm|bps|pts?|cts?|qts?|pcs|kgs|cms|mls|rs"
    r"|wks?|yrs?|mo|sq|us|st|nd|rd|th)(?![A-Za-z]))"
    r"(?:[a-z]{2}|[A-Z]{2}|[abcxyz]{3}|[b-df-hj-np-tv-z]{3})(?:\.?\Z| ?\^| ?/ ?[A-Za-z]\b))"
)
_NUMBER = r"[+-]?(?:\d[\d,]*+(?:\.\d+)?+|\.\d+)"
_UNIT = re.compile(
    rf"({_NUMBER}(?: ?/ ?\d++)?) ?-?"
    rf" ?{_NO_UNIT}{_NO_OPERATION}{_NO_LETTERS}[A-Za-z]{{2,}}+\.?"
    rf"(?:[-/ ]{_NO_UNIT}[A-Za-z]++\.?){{0,3}}"
    r"(?: ?\^ ?(?:\{\d\}|\d))?"
)
_SCALED = re.compile(
    rf"({_NUMBER}) ?(thousand|million|billion|trillion)(?: [A-Za-z]{{2,}}+){{0,2}}",
    re.IGNORECASE,
)
_ZEROS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Which half of the day is part of the answer, not a unit.
_HALF_DAY = re.compile(r"\b([ap])\.?\s?m\b\.?", re.IGNORECASE)


def unify_words(text: str) -> str:
    """Drop units and marks, write percent as a sign, scales as digits, conjunctions as commas."""
    if _THOUSANDS.fullmatch(text):
        return text.replace(",", "")
    if " " in text and _SPACED_THOUSANDS.fullmatch(text):
        return text.replace(" ", "")
    if text.isdigit():
        return text
    if ":" in text:
        text = _HALF_DAY.sub(lambda found: f"{found[1].lower()}m", text)
    text = _PERCENT_WORD.sub("%", text)
    if text[:1] in "+-.0123456789":
        scaled = _SCALED.fullmatch(text)
        if scaled is not None:
            return _with_zeros(scaled[1].replace(",", ""), _ZEROS[scaled[2].lower()])
        unit = _UNIT.fullmatch(text)
        if unit is not None:
            return unify_words(unit[1])
    return _AND_OR.sub(",", text)


def names_half_day(text: str) -> bool:
    """Tell whether a supposed unit is a.m. or p.m."""
    return _HALF_DAY.search(text) is not None


def _with_zeros(number: str, power: int) -> str:
    whole, _, fraction = number.partition(".")
    if len(fraction) <= power:
        return whole + fraction.ljust(power, "0")
    return f"{whole}{fraction[:power]}.{fraction[power:]}"
