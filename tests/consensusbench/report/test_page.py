"""The page as a file: complete, loading nothing, escaped, bounded."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="the extra consensusbench is not installed")
pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from pathlib import Path

from consensusbench.evaluation.metrics import evaluate
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.quality.diagnose import DEFAULT_THRESHOLDS, Diagnosis, DiagnosisReport
from consensusbench.report.page import MAX_BARS, diagnosis_section, facts_of
from consensuspr.console import printable
from tests.consensusbench.report.conftest import (
    HOSTILE,
    Outline,
    Written,
    ordinary_problems,
    ordinary_rollouts,
    problem,
    response,
    rollout,
    scored,
    write_page,
)

URLS = {"src", "href", "action", "formaction", "data", "poster", "srcset", "background"}


@pytest.fixture(params=["ordinary_page", "hostile_page"])
def page(request: pytest.FixtureRequest) -> Written:
    """Each of the two pages in turn."""
    written = request.getfixturevalue(request.param)
    assert isinstance(written, Written)
    return written


def test_the_page_is_well_formed(page: Written) -> None:
    outline = Outline(page.html)
    assert outline.faults == [] and outline.open == []
    ids = Counter(a["id"] for _, a in outline.elements if "id" in a)
    assert [name for name, times in ids.items() if times > 1] == []


def test_the_page_loads_nothing(page: Written) -> None:
    outline = Outline(page.html)
    links = [
        value
        for _, attributes in outline.elements
        for name, value in attributes.items()
        if name in URLS
    ]
    assert [link for link in links if not str(link).startswith("#")] == ["data:,"]
    assert not {"img", "iframe", "object", "embed", "base", "form action"} & {
        tag for tag, _ in outline.elements
    }
    [style] = outline.texts["style"]
    assert "url(" not in style and "@import" not in style


def test_only_its_own_style_and_script_are_allowed(page: Written) -> None:
    outline = Outline(page.html)
    policies = [
        str(meta["content"])
        for meta in outline.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    [policy] = policies
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page.html, flags=re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert directives[directive] == f"'sha256-{digest}'"
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in policy
    # Handlers and style attributes would be refused by it, hence must not be needed.
    names = {name for _, attributes in outline.elements for name in attributes}
    assert [name for name in names if name.startswith("on") or name == "style"] == []


def test_hostile_texts_are_all_there_as_text(hostile_page: Written) -> None:
    outline = Outline(hostile_page.html)
    assert len(outline.all("script")) == len(outline.all("style")) == 1
    shown = "".join(outline.texts["details"])
    for text in HOSTILE:
        assert printable(text) in shown
    assert "\x00" not in hostile_page.html and "\u202e" not in hostile_page.html
    models = {rollout["data-model"] for rollout in rollouts_of(outline)}
    assert {f"model {printable(text)}" for text in HOSTILE} <= models


def rollouts_of(outline: Outline) -> list[dict[str, str | None]]:
    return [a for a in outline.all("details") if a.get("class") == "rollout"]


def test_every_rollout_carries_what_it_is_filtered_by(ordinary_page: Written) -> None:
    rollouts = rollouts_of(Outline(ordinary_page.html))
    assert len(rollouts) == ordinary_page.report.rollouts_shown == 24
    kinds = Counter((r["data-model"], r["data-side"], r["data-kind"]) for r in rollouts)
    assert kinds == {
        ("plain", "right", "sound"): 6,
        ("plain", "wrong", "almost correct"): 6,
        ("terse", "right", "direct answer"): 6,
        ("terse", "wrong", "wrong"): 6,
    }
    assert {r["data-ncr"] for r in rollouts} == {"1.000000", "0.666667", "0.000000"}


def test_hits_are_marked_where_they_are(ordinary_page: Written) -> None:
    body = ordinary_page.html.split('id="rollout-')[1]
    marks = re.findall(
        r'<mark class="(n\d+)" title="([^"]+)" data-ends="(\d)">([^<]+)</mark>', body
    )
    assert marks == [
        ("n1", "node 1: twice", "1", "11 * 2 = 22"),
        ("n2", "node 2: thrice", "2", "11 * 3 = 33"),
        ("n3", "node 3: together", "3", "22 + 33 = 55"),
    ]


def test_a_reader_finds_headings_captions_and_names(ordinary_page: Written) -> None:
    outline = Outline(ordinary_page.html)
    assert outline.texts["h2"] == [
        "Results", "Distributions", "Rewards", "Reward hacking", "Diagnosis", "Problems",
        "Rollouts",
    ]  # fmt: skip
    assert len(outline.all("caption")) == len(outline.all("table"))
    assert all(table.get("scope") for table in outline.all("th"))
    named = [svg for svg in outline.all("svg") if svg.get("aria-hidden") != "true"]
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in named)
    assert outline.all("html")[0]["lang"] == "en"
    rows = [text for text in outline.texts["tr"] if text.startswith("plain")]
    # 12 rollouts of 6 problems, half right
    assert rows[0].startswith("plain12650.0")
    links = [str(a["href"])[1:] for a in outline.all("a")]
    assert set(links) <= {str(a["id"]) for _, a in outline.elements if "id" in a}


def test_statuses_are_loud(tmp_path: Path) -> None:
    rollouts = [*ordinary_rollouts(), rollout(99, "lost", "text")]
    page = write_page(tmp_path, ordinary_problems(), rollouts)
    [warning] = page.report.warnings
    assert warning.startswith("1 rollouts have status UNKNOWN_PROBLEM: the dataset does not have")
    assert page.html.index("UNKNOWN_PROBLEM") < page.html.index('<h2 id="results">')
    kinds = {r["data-kind"] for r in rollouts_of(Outline(page.html))}
    assert "UNKNOWN_PROBLEM" in kinds


def test_the_head_warns_of_attacks_that_pay_better_than_being_wrong(tmp_path: Path) -> None:
    # No row says which rollouts are wrong: the page has judged them.
    texts = [("wrong", response(11, nodes=0, right=False)), ("sound", response(11))]
    page = write_page(tmp_path, [problem(11)], [rollout(11, name, text) for name, text in texts])
    [warning] = page.report.warnings
    assert (
        "earns an NCR of" in warning and "of odd" in warning and "wrong rollouts 0.0 %" in warning
    )
    assert page.html.index("earns an NCR of") < page.html.index('<h2 id="results">')


def test_the_head_counts_problems_and_the_results_what_they_are_over(tmp_path: Path) -> None:
    rollouts = [*ordinary_rollouts(), rollout(99, "lost", "text", ground_truth="7")]
    problems = [problem(number) for number in range(11, 20)]
    page = write_page(tmp_path, problems, rollouts, no_probes=True)
    for name, value in (
        ("Problems of the dataset", "9"),
        ("Problems with rollouts", "7, of them 1 without nodes"),
        ("Nodes", "18 of 6 problems with rollouts (3.0 a problem)"),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page.html
    outline = Outline(page.html)
    [over] = [row for row in outline.texts["tr"] if row.startswith("all2572548.0")]
    assert "2441.7" in over  # NCR is over the 24 rollouts with nodes


def test_a_rollout_without_nodes_comes_last_and_is_not_called_wrong(tmp_path: Path) -> None:
    lost = rollout(99, "lost", "\\boxed{8}", ground_truth="7")
    page = write_page(tmp_path, ordinary_problems(), [lost, *ordinary_rollouts()], no_probes=True)
    assert rollouts_of(Outline(page.html))[-1]["data-kind"] == "NO_NODES"
    told = re.sub(r"<[^>]*>", "", page.html.split('<details class="rollout"')[-1])
    assert "NO_NODES" in told.split("p99-lost")[0] and "✗ wrong" not in told
    assert "by its own row the answer is wrong." in told
    assert "The dataset does not have the text of this problem." in told
    assert "Those without nodes come last." in page.html


def test_both_coverages_are_named(ordinary_page: Written) -> None:
    [almost] = [
        part
        for part in ordinary_page.html.split('<details class="rollout"')
        if ">p11-almost<" in part
    ]
    assert "<span>2 of 3 nodes</span>" in almost
    assert "NCR: 0.67 (2 of 3 nodes), 1.00 without final nodes. Diagnosis:" in almost
    assert "; NCR without final nodes)." in almost


def test_without_tokens_there_is_a_line_and_no_card(tmp_path: Path, ordinary_page: Written) -> None:
    assert "TPN: mean number of tokens" in ordinary_page.html
    assert 'id="chart-all-tpn"' in ordinary_page.html
    rows = [row | {"num_tokens": None} for row in ordinary_rollouts()]
    page = write_page(tmp_path, ordinary_problems(), rollouts=rows, no_probes=True)
    assert "TPN: mean number of tokens" not in page.html
    assert 'chart-all-tpn"' not in page.html and "TPN on a logarithmic axis" not in page.html
    line = "Tokens per node: No rollout has both a length in tokens and a matched node."
    assert page.html.count(line) == 3  # for all models, and for each of the two


def test_thresholds_are_sentences(ordinary_page: Written) -> None:
    assert "Almost correct: a wrong answer with an NCR of 0.75 or more and 2 nodes" in (
        ordinary_page.html
    )
    assert "almost ncr" not in ordinary_page.html and "Thresholds:" not in ordinary_page.html


def test_models_stand_in_one_order_everywhere(tmp_path: Path) -> None:
    models = ["zeta", "Beta", "alpha", ""]
    rows = [
        rollout(number, f"{at}", response(number), model=model)
        for at, model in enumerate(models)
        for number in range(11, 12 + at)
    ]
    page = write_page(tmp_path, ordinary_problems(), rows, no_probes=True)
    ordered = ["Beta", "alpha", "zeta", "(none)"]
    for caption in ("Results by model", "Classes by model"):
        table = page.html.split(f"<caption>{caption}</caption>")[1].split("</table>")[0]
        assert re.findall(r'<th scope="row"[^>]*>([^<]+)', table) == [*ordered, "all"]
    bars = page.html.split('id="chart-all-diagnosis"')[1].split("</figure>")[0]
    assert re.findall(r">([^<>]+) \(\d+\)</text>", bars) == [*ordered, "all"]
    chosen = page.html.split('<select name="model">')[1].split("</select>")[0]
    assert re.findall(">([^<]+)</option>", chosen) == ["all", *ordered]


def test_no_model_is_left_out_silently() -> None:
    groups = {
        (f"m{at:03}", "s"): Counter({Diagnosis.SOUND: 1 + at % 9}) for at in range(MAX_BARS + 20)
    }
    for few in (MAX_BARS - 1, MAX_BARS + 20):
        some = dict(list(groups.items())[:few])
        report = DiagnosisReport([], DEFAULT_THRESHOLDS, groups=some)
        for counts in some.values():
            report.total.update(counts)
        section = diagnosis_section(report)
        [chart] = section.scopes[0].charts
        drawn = len(re.findall(r">m\d{3} \(", str(chart.svg)))
        assert len(section.tables[0].rows) == few + 1
        if few < MAX_BARS:
            assert drawn == few and chart.notes == ()
        else:
            assert drawn == MAX_BARS - 1  # and one for all models
            assert chart.notes == (
                "21 models with fewer rollouts are left out here; the table below has all.",
            )


def test_the_size_is_bounded_and_said(tmp_path: Path) -> None:
    long = response(11, tail="filler text " * 30_000)
    rows = [rollout(11, f"long-{at}", long) for at in range(30)]
    page = write_page(
        tmp_path,
        [problem(11)],
        rows,
        max_rollouts=10,
        max_chars=5000,
        max_page_chars=2_000,
        no_probes=True,
    )
    embedded = "".join(
        re.findall(
            r'<div class="response" lang="">(.*?)<div class="aside">', page.html, flags=re.DOTALL
        )
    )
    assert 2_000 < len(re.sub(r"<[^>]*>", "", embedded)) < 2_500  # with what stands for the rest
    assert page.report.size_bytes == page.path.stat().st_size < 300_000
    assert "10 of 30 rollouts, chosen" in page.html
    assert re.search(r"Of 10 long ones, [\d,]{9} characters are left out", page.html)


def test_stored_answers_are_bounded_too(tmp_path: Path) -> None:
    """What a file says about itself is as long as its writer wants."""
    nodes = len(problem(11)["nodes"])
    score = {"acc": 0.0, "ncr": 0.0, "matched": [False] * nodes, "spans": [None] * nodes}
    row = rollout(11, "stored", "x") | score | {"status": "OK", "answer": "7" * 400_000}
    page = write_page(tmp_path, [problem(11, ground_truth="8" * 50_000)], [row], no_probes=True)
    assert "7" * 999 + "…" in page.html and "7" * 1001 not in page.html
    assert "8" * 999 + "…" in page.html and "8" * 1001 not in page.html


def test_a_page_tells_no_folder_of_its_tokenizer(tmp_path: Path) -> None:
    for told, shown in ((str(tmp_path), tmp_path.name), ("maker/model", "maker/model")):
        made = ScoredSet({}, [scored()], tokenizer=told, num_tokenized=3)
        facts = dict(facts_of(made, evaluate(made), "/x/d.jsonl", "abc"))
        assert facts["Tokens"] == f"3 rollouts counted by {shown}"


def test_a_page_without_rollouts_is_a_page(tmp_path: Path) -> None:
    page = write_page(
        tmp_path, [problem(11)], [rollout(11, "one", response(11))], max_rollouts=0, no_probes=True
    )
    outline = Outline(page.html)
    assert outline.faults == [] and rollouts_of(outline) == []
    assert "Reward hacking" not in outline.texts["h2"]


def test_equal_input_gives_an_equal_page(tmp_path: Path) -> None:
    pages = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        pages.append(write_page(folder, ordinary_problems(), ordinary_rollouts()).html)
    assert pages[0] == pages[1]


def test_a_problem_without_nodes_and_an_empty_response_are_shown(tmp_path: Path) -> None:
    page = write_page(
        tmp_path,
        [problem(11, nodes=[]), problem(12)],
        [rollout(11, "nodeless", response(11)), rollout(12, "empty", "", num_tokens=None)],
        no_probes=True,
    )
    assert Outline(page.html).faults == []
    assert "No nodes were looked for." in page.html
    assert "NO_NODES" in page.html
