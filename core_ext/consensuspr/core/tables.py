"""The vocabulary of the normal form: characters, LaTeX commands and words with a meaning.

One source for both engines: the pure-Python engine reads these dictionaries, the compiled
core copies them into C tables when it is imported.  Changing anything here changes the
normal form and therefore :data:`NORMAL_FORM_VERSION`.

Characters are described after a one-to-one canonicalisation (:data:`CHAR_MAP`): every
input character becomes exactly one canonical character, so that offsets stay simple.
"""

from __future__ import annotations

import unicodedata
from enum import IntEnum
from typing import Final

# Raised whenever any input can normalise differently; every score carries it.
NORMAL_FORM_VERSION: Final = "3"

# Stands for one undecodable byte, a NUL or a lone surrogate.
REPLACEMENT: Final = "\x1a"

# What stands between two paragraphs of a normal form, and nowhere else.
PARAGRAPH: Final = "\n\n"

# --- limits (docs/reference/matching.md, "Limits") ----------------------------------------
# Open groups remembered at a time; brackets past it are emitted as they stand.
MAX_OPEN_GROUPS: Final = 32
# How far back in the output, in bytes, a rewrite may move or look at text.
MAX_REWRITE_BYTES: Final = 96
# Non-blank characters that a decision may look ahead.
LOOKAHEAD: Final = 8
# Unit words dropped between a number and an operator.
MAX_UNIT_WORDS: Final = 3
# Letters from which on a word is a name; shorter ones can be products of variables.
MIN_NAME: Final = 4
# Digits of a number behind which a letter can be a unit.
MAX_UNIT_DIGITS: Final = 24
# Bytes of a bracket that can belong to a unit: 4 hours (driving) + 6.
MAX_UNIT_BRACKET: Final = 40
# Characters of a bracket that is a factor although a blank stands before it, and of one so short
# that it may be a label.
MAX_FACTOR: Final = 40
MAX_LABEL: Final = 2


class Char(IntEnum):
    """Class of a canonical character; the main switch of both engines."""

    OTHER = 0  # passed through, separates nothing and joins nothing
    SPACE = 1
    NEWLINE = 2
    DIGIT = 3
    LETTER = 4  # part of a word
    SYMBOL = 5  # an operand of one character: Greek letters, infinity, sums
    ROOT = 6  # a prefix that binds to what follows
    RELATION = 7
    PLUS_MINUS = 8  # the signs ± and ∓; + and - have classes of their own
    PLUS = 9
    MINUS = 10
    STAR = 11  # ASCII *, which may be Markdown
    TIMES = 12  # any other multiplication sign
    SLASH = 13
    CARET = 14
    UNDERSCORE = 15
    EQUALS = 16
    LESS = 17
    GREATER = 18
    OPEN = 19  # (
    CLOSE = 20  # )
    BRACKET_OPEN = 21  # [
    BRACKET_CLOSE = 22  # ]
    BRACE_OPEN = 23
    BRACE_CLOSE = 24
    COMMA = 25
    POINT = 26
    SENTENCE_END = 27  # ? ;
    BANG = 28
    COLON = 29
    PRIME = 30
    MARK = 31  # vanishes, but keeps operands apart: $ ` " #
    DROP = 32  # vanishes without a trace: % and the degree sign
    BAR = 33
    AMPERSAND = 34
    BACKSLASH = 35
    BULLET = 36  # a list mark at a line's start, otherwise a multiplication sign
    ARROW = 37
    SUPERSCRIPT = 38
    SUBSCRIPT = 39
    FRACTION = 40  # ½ and its kin
    HASH = 41


class Command(IntEnum):
    """What a LaTeX command does; unknown ones become words of their name."""

    WORD = 0  # emit the name as a word
    EMIT = 1  # stands for the canonical character in the payload
    SPACE = 2
    NOTHING = 3
    DELIMITER = 4  # \left and its kin: vanish together with a following point
    MARK = 5  # vanishes, but keeps operands apart
    BREAK = 6
    WRAP = 7  # \mathbf{...}: the braces vanish, the content joins its neighbours
    TEXT = 8  # \text{...}: the braces vanish, the content stands apart
    DISCARD = 9  # \hspace{...}: vanishes with its argument
    ENVIRONMENT = 10  # \begin{...}, \end{...}: a break, and the name vanishes
    FRAC = 11
    BINOM = 12
    SQRT = 13
    MOD = 14
    THIN = 15  # a space so thin that a factor may follow
    NOT = 16  # strikes the relation that follows
    BAR = 17  # one side of an absolute value
    UPRIGHT = 18  # TEXT, but a name where it holds one letter: \mathrm{P}(A)


class Word(IntEnum):
    """What a lower-cased word of two letters or more means beside being a word."""

    PLAIN = 0
    STOP = 1  # never part of a unit
    FUNCTION = 2  # never a unit; its brackets are an argument list
    SYMBOL = 3  # pi and spelled-out Greek letters: one canonical character
    SQRT = 4
    MOD = 5
    EQUALS = 6
    TO = 7  # ends "is equal to"
    PLUS = 8
    MINUS = 9
    TIMES = 10
    BY = 11  # ends "divided by", "multiplied by"
    PERCENT = 12
    GLUED_UNIT = 13  # a unit that is written tight to its number: 5cm
    APPLIED = 14  # a function whose argument follows without brackets: sin x
    CURRENCY = 15  # vanishes behind an amount, as its sign does
    MINUTES = 16  # "min": a glued unit behind a number where no bracket follows, else a function


_GREEK_NAMES: Final = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
        "sigma tau upsilon phi chi psi omega".split(),
        "αβγδεζηθικλμνξοπρστυφχψω",
        strict=True,
    )
)

# --- characters ---------------------------------------------------------------------------


def _char_map() -> dict[int, str]:
    """Build the one-to-one canonicalisation of characters outside ASCII, and of controls."""
    table: dict[int, str] = {0: REPLACEMENT, 0x09: " ", 0x0B: " ", 0x0C: " "}

    def put(chars: str, canonical: str) -> None:
        for char in chars:
            table[ord(char)] = canonical

    for code in (*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800), *range(0x2100, 0x2150)):
        folded = unicodedata.normalize("NFKC", chr(code))
        if len(folded) == 1 and folded != chr(code) and (folded.isascii() or "Α" <= folded <= "ω"):
            table[code] = folded
    put("\u00a0\u00ad\u061c\u1680\u180e\u202f\u205f\u3000\ufeff", " ")
    put("".join(map(chr, (*range(0x2060, 0x2065), *range(0xFE00, 0xFE10)))), " ")
    put("".join(map(chr, (*range(0x2000, 0x2010), *range(0x202A, 0x202F)))), " ")
    put("".join(map(chr, range(0x2066, 0x206A))), " ")
    put("\u0085\u2028\u2029", "\n")
    put("\u2010\u2011\u2012\u2013\ufe63", "-")
    for chars, canonical in (
        ("·⋅∗∙✕✖⨯⨉", "×"), ("∕⁄÷", "/"), ("∶：", ":"), ("“”„‟«»″", '"'), ("‘’‚‛′ʼ´", "'"),
        ("£€¥₹￥￡", "$"), ("￠", "¢"), ("。", "."), ("、", ","), ("ϵ", "ε"), ("ϑ", "θ"),
        ("ϕ", "φ"), ("ϖ", "π"), ("ϱ", "ρ"), ("ς", "σ"), ("µ", "μ"), ("Ω", "Ω"), ("∆△", "Δ"),
        ("－", "−"), ("⩽≦", "≤"), ("⩾≧", "≥"), ("≃≒≐", "≈"), ("∣", "|"), ("⇒⟹⟶↦⇔⟺↔⟷⟵←⇐∴∵➜➔⟸➡", "→"),
        ("ºÂ°˚"[0] + "˚", "°"),
    ):  # fmt: skip
        put(chars, canonical)
    # One step must be enough: a mathematical final sigma is a sigma.
    return {code: table.get(ord(char), char) for code, char in table.items()}


CHAR_MAP: Final[dict[int, str]] = _char_map()

_ASCII_CLASSES: Final = {
    " ": Char.SPACE, "\n": Char.NEWLINE, "\r": Char.NEWLINE, "+": Char.PLUS,
    "-": Char.MINUS, "*": Char.STAR, "/": Char.SLASH,
    "^": Char.CARET, "_": Char.UNDERSCORE, "=": Char.EQUALS, "<": Char.LESS,
    ">": Char.GREATER, "(": Char.OPEN, ")": Char.CLOSE, "[": Char.BRACKET_OPEN,
    "]": Char.BRACKET_CLOSE, "{": Char.BRACE_OPEN, "}": Char.BRACE_CLOSE, ",": Char.COMMA,
    ".": Char.POINT, "?": Char.SENTENCE_END, ";": Char.SENTENCE_END, "!": Char.BANG,
    ":": Char.COLON, "'": Char.PRIME, '"': Char.MARK, "`": Char.MARK, "$": Char.MARK,
    "#": Char.HASH, "%": Char.DROP, "|": Char.BAR, "&": Char.AMPERSAND, "\\": Char.BACKSLASH,
    "~": Char.SPACE,
}  # fmt: skip


def _char_classes() -> dict[str, Char]:
    table: dict[str, Char] = dict(_ASCII_CLASSES)
    for code in range(128):
        char = chr(code)
        if char.isdigit():
            table[char] = Char.DIGIT
        elif char.isalpha():
            table[char] = Char.LETTER
    # Latin with diacritics, combining marks and Cyrillic make words; Greek letters are
    # operands of their own; ideographs stay OTHER, so that a formula may touch them.
    for code in (*range(0xC0, 0x250), *range(0x300, 0x370), *range(0x400, 0x500)):
        table.setdefault(chr(code), Char.LETTER)
    for code in range(0x370, 0x400):
        if chr(code).isalpha():
            table[chr(code)] = Char.SYMBOL
    groups = {
        Char.SYMBOL: "∞∅∑∏∫∂∇ℵ",
        Char.ROOT: "√∛∜∠∡",
        Char.RELATION: "≤≥≠≈≡≅∼∝∈∉∋⊂⊆⊃⊇∪∩⊥∥∧∨≪≫" + "".join(NEGATED.values()),
        Char.PLUS_MINUS: "±∓",
        Char.MINUS: "−",
        Char.TIMES: "×",
        Char.DROP: "°¢℃℉",
        Char.BULLET: "•◦▪‣●○■",
        Char.ARROW: "→",
    }
    for cls, chars in groups.items():
        for char in chars:
            table[char] = cls
    for mapping, cls in ((SUPERSCRIPTS, Char.SUPERSCRIPT), (SUBSCRIPTS, Char.SUBSCRIPT)):
        for char in mapping:
            table[char] = cls
    for char in FRACTIONS:
        table[char] = Char.FRACTION
    # What is canonicalised away has no class of its own.
    return {char: cls for char, cls in table.items() if CHAR_MAP.get(ord(char), char) == char}


# A relation that \\not strikes out.
NEGATED: Final = dict(zip("=∈∋⊂⊃⊆⊇≡≅≈∼<>≤≥∥|", "≠∉∌⊄⊅⊈⊉≢≇≉≁≮≯≰≱∦∤", strict=True))
SUPERSCRIPTS: Final = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni", strict=True))
SUBSCRIPTS: Final = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
FRACTIONS: Final = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
    "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8",
    "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
CHAR_CLASSES: Final[dict[str, Char]] = _char_classes()


def classes_of(chars: str) -> frozenset[Char]:
    """Return the classes of some canonical characters."""
    return frozenset(map(CHAR_CLASSES.__getitem__, chars))


# --- LaTeX commands: name without the backslash -> (action, payload) -------------------------

# A canonical character, and the commands that stand for it.
_EMITTED: Final = (
    "ε varepsilon;θ vartheta;φ varphi;π varpi;ρ varrho;σ varsigma;× times cdot ast bullet star "
    "cdotp;/ div;± pm;∓ mp;≤ le leq leqslant leqq;≥ ge geq geqslant geqq;≠ ne neq;≈ approx "
    "simeq doteq thickapprox;≡ equiv;≅ cong;∼ sim;∝ propto;< lt;> gt;∈ in;∉ notin;∌ notni;∤ "
    "nmid;∦ nparallel;≮ nless;≯ ngtr;≰ nleq nleqslant;≱ ngeq ngeqslant;≇ ncong;≁ nsim;⊈ "
    "nsubseteq;⊉ nsupseteq;⊂ subset;⊆ subseteq;⊃ supset;⊇ supseteq;∪ cup;∩ cap;⊥ perp;∥ "
    "parallel;∧ land wedge;∨ lor vee;≪ ll;≫ gg;∞ infty;∅ emptyset varnothing;∑ sum;∏ prod;∫ int;"
    "∂ partial;∇ nabla;∠ angle measuredangle;Δ triangle;| mid vert;' prime;° degree;: colon;… "
    "ldots cdots dots dotsc dotsb vdots ddots;[ lbrack;] rbrack;⌊ lfloor;⌋ rfloor;⌈ lceil;⌉ "
    "rceil;⟨ langle;⟩ rangle;→ to rightarrow Rightarrow longrightarrow Longrightarrow implies "
    "iff leftrightarrow Leftrightarrow Longleftrightarrow mapsto therefore because leftarrow "
    "Leftarrow xrightarrow longmapsto"
)


def _commands() -> dict[str, tuple[Command, str]]:
    table: dict[str, tuple[Command, str]] = {}

    def put(names: str, action: Command, payload: str = "") -> None:
        for name in names.split():
            table[name] = (action, payload)

    for name, char in _GREEK_NAMES.items():
        put(name, Command.EMIT, char)
        put(name.capitalize(), Command.EMIT, char.upper())
    for emitted in _EMITTED.split(";"):
        char, _, names = emitted.partition(" ")
        put(names, Command.EMIT, char)
    put("lvert rvert", Command.BAR)
    put("quad qquad hfill newline linebreak hline cline par item", Command.BREAK)
    put("space nobreakspace", Command.SPACE)
    put("enspace thinspace medspace thickspace", Command.THIN)
    put(
        "displaystyle textstyle scriptstyle limits nolimits nonumber notag lbrace rbrace "
        "bf it rm sf tt em large Large small normalsize centering negthinspace smallskip "
        "medskip bigskip noindent boldmath",
        Command.NOTHING,
    )
    put(
        "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm middle",
        Command.DELIMITER,
    )
    put(
        "mathbf mathit mathcal mathbb mathfrak mathsf mathtt boldsymbol bm bold vec bar hat tilde "
        "overline underline overrightarrow widehat widetilde dot ddot cancel bcancel xcancel "
        "overbar overset underset stackrel underbrace overbrace ensuremath mathop operatorname "
        "mathord mathrel mathbin smash",
        Command.WRAP,
    )
    put(
        "textbf textit textsf texttt mbox hbox emph boxed fbox "
        "underbrace framebox textsc tag section subsection paragraph title caption",
        Command.TEXT,
    )
    put("text mathrm textrm textnormal textup", Command.UPRIGHT)
    put(
        "hspace vspace label ref eqref color textcolor phantom hphantom vphantom cite footnote "
        "usepackage documentclass includegraphics",
        Command.DISCARD,
    )
    put("begin end", Command.ENVIRONMENT)
    put("frac dfrac tfrac cfrac nicefrac sfrac xfrac flatfrac", Command.FRAC)
    put("binom dbinom tbinom", Command.BINOM)
    put("sqrt", Command.SQRT)
    put("not", Command.NOT)
    put("mod bmod pmod", Command.MOD)
    # Commands of one character that is not a letter.
    put(", : ; >", Command.THIN)
    put("! / @ - + { } %", Command.NOTHING)
    put("( ) [ ] $", Command.MARK)
    put("\\", Command.BREAK)
    table[" "] = table["~"] = (Command.SPACE, "")
    for char in "|&#_^*\"'`=?":
        table[char] = (Command.EMIT, char)
    return table


COMMANDS: Final[dict[str, tuple[Command, str]]] = _commands()

# Commands whose digits repeat: 0.1\overline{36}.
REPEATING: Final = ("overline", "bar", "overbar")
# What begins display mathematics, with the beginnings of its environments' names.
DISPLAYS: Final = (
    "\\[",
    "$$",
    *(
        f"\\begin{{{name}"
        for name in ("align equation gather multline eqnarray displaymath flalign".split())
    ),
)
# Environments whose \begin{...} is followed by a second argument, the columns.
COLUMN_ENVIRONMENTS: Final = ("array", "tabular")

# --- words ---------------------------------------------------------------------------------


def _words() -> dict[str, tuple[Word, str]]:
    table: dict[str, tuple[Word, str]] = {}

    def put(words: str, meaning: Word) -> None:
        for word in words.split():
            table[word] = (meaning, "")

    put(
        "and or so then is are was were be been of to for from in on at by with that which this "
        "these those it its we he she they there has have had if when because since therefore "
        "thus hence but not as than the an also where while after before will would can get "
        "gets got gives give makes make equal plus minus times divided multiplied let into "
        "out each every both either you his her their our my your who what how "
        "me us no do go up am ok vs",
        Word.STOP,
    )
    put(
        "gcd lcm max det dim deg ker arg sup inf lim rank tr floor ceil abs sgn binom choose",
        Word.FUNCTION,
    )
    put(
        "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp",
        Word.APPLIED,
    )
    for name, char in _GREEK_NAMES.items():
        table[name] = (Word.SYMBOL, char)
    table["sqrt"] = (Word.SQRT, "√")
    table["mod"] = (Word.MOD, "")
    table["equals"] = (Word.EQUALS, "=")
    table["to"] = (Word.TO, "=")
    table["plus"] = (Word.PLUS, "+")
    table["minus"] = (Word.MINUS, "-")
    table["times"] = (Word.TIMES, "")
    table["by"] = (Word.BY, "")
    table["percent"] = (Word.PERCENT, "")
    table["min"] = (Word.MINUTES, "")
    put(
        "cm mm km kg kgs mg ml mi ft lb lbs oz hr hrs mins sec secs mph kph gb mb th "
        "inches feet miles meters hours minutes days weeks months years "
        "gram grams kilogram kilograms meter metre metres kilometer kilometers liter liters litre "
        "litres second seconds hour minute inch foot yard yards gallon gallons ounce ounces "
        "dm cl dl hl kb tb ha yd pt qt kw kj hz kv mv mw pm pc tv cd dj ox mo yr wk nd st rd",
        Word.GLUED_UNIT,
    )
    put(
        "dollar dollars cent cents euro euros pound pounds yen rupee rupees usd eur gbp",
        Word.CURRENCY,
    )
    return table


WORDS: Final[dict[str, tuple[Word, str]]] = _words()
# Words between an amount and its currency: 3 million dollars.
AMOUNTS: Final = ("hundred", "thousand", "million", "billion", "trillion")
# Letters that are a unit behind a number where the statement says so (rule 3), and those that are
# one behind a degree sign.
UNIT_LETTERS: Final = "gmshlL"
DEGREE_LETTERS: Final = "CFK"
# Longest word that can have a meaning; longer ones are plain without a look-up.
MAX_WORD: Final = max(map(len, WORDS))
