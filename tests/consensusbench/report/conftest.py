"""A small dataset with rollouts of every kind, some of them hostile, and a page about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.browser import BROWSER_REQUIRED
from tests.consensusbench.conftest import scored_rollout
from tests.rows import write_rows
from tests.web.kept import kept_documents

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout
    from consensusbench.report.page import WrittenReport

# What a policy, or whoever wrote its training data, might put into a response.
HOSTILE = (
    "</script><script>window.owned=1</script>",
    '"><img src=x onerror="window.owned=2">',
    "</details></div></style><style>body{display:none}</style>",
    "<!-- ${7*7} {{7*7}} {% raw %} ]]> &lt;b&gt;",
    '<iframe src="javascript:parent.owned=3"></iframe><base href="//example.org/">',
    "<svg onload=window.owned=4></svg><meta http-equiv=refresh content='0;url=//example.org'>",
    "zero\x00byte, escape \x1b[31m, bell \x07, line\u2028paragraph\u2029, \u202eleft\u202c",
    "lone surrogate \ud800, emoji \U0001f9ee, combining e\u0301",
)


def problem(number: int, **changes: Any) -> dict[str, Any]:
    """Return a problem whose nodes are ``N*2=…``, ``N*3=…`` and the sum as final answer."""
    return {
        "problem_id": f"p{number}",
        "data_source": "odd" if number % 2 else "even",
        # Without the number, so that nothing in it can be combined to nodes.
        "problem": f"What is twice letter {chr(96 + number)} and three times it together?",
        "ground_truth": str(5 * number),
        "nodes": [
            {"node_id": "n1", "label": "twice", "expressions": [f"{number}*2={2 * number}"]},
            {"node_id": "n2", "label": "thrice", "expressions": [f"{number}*3={3 * number}"]},
            {
                "node_id": "n3",
                "label": "together",
                "expressions": [f"{2 * number}+{3 * number}={5 * number}"],
                "is_final": True,
            },
        ],
        "metadata": {"level": 1 + number % 5},
        **changes,
    }


def ordinary_problems() -> list[dict[str, Any]]:
    """Return the six problems that the ordinary rollouts answer."""
    return [problem(number) for number in range(11, 17)]


def response(number: int, *, nodes: int = 3, right: bool = True, tail: str = "") -> str:
    """Return a response that reaches the first so many nodes."""
    steps = [
        f"First {number} * 2 = {2 * number}.",
        f"Then {number} * 3 = {3 * number}.",
        f"So {2 * number} + {3 * number} = {5 * number}.",
    ]
    answer = 5 * number if right else 5 * number + 1
    return "\n".join([*steps[:nodes], tail, f"\\boxed{{{answer}}}"])


def rollout(number: int, name: str, text: str, **changes: Any) -> dict[str, Any]:
    """Return a row of a rollouts file."""
    return {
        "problem_id": f"p{number}",
        "rollout_id": f"p{number}-{name}",
        "model": "plain",
        "response": text,
        "num_tokens": max(1, len(text) // 4),
        **changes,
    }


def ordinary_rollouts() -> list[dict[str, Any]]:
    """Return rollouts of six problems by two models: right, almost, direct and wrong."""
    rows = []
    for number in range(11, 17):
        rows += [
            rollout(number, "sound", response(number)),
            rollout(number, "almost", response(number, nodes=2, right=False)),
            rollout(number, "direct", response(number, nodes=0), model="terse"),
            rollout(number, "wrong", response(number, nodes=0, right=False), model="terse"),
        ]
    return rows


def hostile_rollouts() -> list[dict[str, Any]]:
    """Return rollouts whose text, name and model are hostile."""
    return [
        rollout(
            17,
            f"bad-{at} {text}",
            response(17, nodes=at % 4, tail=text),
            model=f"model {text}",
            data_source=f"source {text}",
        )
        for at, text in enumerate(HOSTILE)
    ]


def hostile_problem() -> dict[str, Any]:
    """Return a problem whose texts are hostile too."""
    row = problem(17, problem=" ".join(HOSTILE[:6]), data_source=HOSTILE[0])
    row["nodes"][0]["label"] = HOSTILE[1]
    row["nodes"][1]["expressions"].append(HOSTILE[2])
    return row


VOID = {"meta", "link", "br", "input", "img", "base"}


class Written:
    """A page on disk, the documents that it holds, and what was result about it."""

    def __init__(self, path: Path, written: WrittenReport) -> None:
        self.path = path
        self.written = written
        self.html = path.read_text(encoding="utf-8")
        self.documents = kept_documents(self.html)
        self.report = self.documents["report"]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The rows of the list of samples."""
        rows: list[dict[str, Any]] = self.documents["rows"]
        return rows

    def sample(self, rollout_id: str) -> dict[str, Any]:
        """Return the document of a rollout."""
        [row] = [row for row in self.samples if row["rollout_id"] == rollout_id]
        found: dict[str, Any] = self.documents[f"sample/{row['run']}/{row['key']}"]
        return found

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the report."""
        [found] = [one for one in self.report["sections"] if one["name"] == name]
        return cast("dict[str, Any]", found)

    def rows(self, section: str, caption: str) -> list[list[Any]]:
        """Return the values of a table's rows."""
        [table] = [t for t in self.section(section)["tables"] if t["caption"] == caption]
        rows = [row for part in table["sections"] for row in part]
        return [[one["value"] if isinstance(one, dict) else one for one in row] for row in rows]


def write_page(
    folder: Path, problems: list[dict[str, Any]], *files: list[dict[str, Any]], **options: Any
) -> Written:
    """Write files and the page about them; skip where the packages for it are missing."""
    if not BROWSER_REQUIRED:
        for package in ("duckdb", "sklearn", "starlette"):
            pytest.importorskip(package, reason="the extra consensusbench is not installed")
    from consensusbench.evaluation.scored import score_files
    from consensusbench.report.page import prepare, write_pages

    dataset = Path(write_rows(folder / "problems.jsonl", problems))
    output = folder / "report.html"
    rollouts = [write_rows(folder / f"rollouts-{at}.jsonl", rows) for at, rows in enumerate(files)]
    scored_set = score_files(rollouts, dataset, spans=True)
    report, sources = prepare(scored_set, dataset, **options)
    return Written(output, write_pages(sources, dataset, output, "", report))


@pytest.fixture(scope="session")
def ordinary_page(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A page about ordinary rollouts."""
    folder = tmp_path_factory.mktemp("ordinary")
    return write_page(folder, ordinary_problems(), ordinary_rollouts())


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A page in which all that a file can say is hostile."""
    problems = [*ordinary_problems(), hostile_problem()]
    rollouts = [*ordinary_rollouts(), *hostile_rollouts()]
    return write_page(tmp_path_factory.mktemp("hostile"), problems, rollouts)


def scored(problem_id: str = "p1", **changes: Any) -> ScoredRollout:
    """Return a scored rollout without a file."""
    return scored_rollout(problem_id=problem_id, **changes)
