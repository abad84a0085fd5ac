"""Each finding on a dataset made to have it, and none on one made not to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensusbench.quality.validate import (
    Code,
    DatasetFinding,
    Severity,
    ValidationReport,
    checked_problems,
    validate_dataset,
)
from consensuspr.core import derive_forms
from consensuspr.errors import DataError

Write = Callable[..., Path]
Found = list[tuple[Code, str | None]]


def node(name: str, *expressions: str, **changes: Any) -> dict[str, Any]:
    forms = [form for text in expressions for form in derive_forms(text)]
    return {"node_id": name, "expressions": list(expressions), "derived": forms, **changes}


SOUND = [node("n1", "12*4=48"), node("n2", "48-6=42", is_final=True)]


def problem(*nodes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "problem_id": "p",
        "data_source": "sums",
        "problem": "A dozen boxes hold 4 eggs each; six break. So $2s+t=19$ of the 144.",
        "ground_truth": "42",
        "nodes": list(nodes),
        **changes,
    }


def findings(
    path: Path, *rollouts: Path, **settings: Any
) -> tuple[ValidationReport, list[DatasetFinding]]:
    reported: list[DatasetFinding] = []
    report = validate_dataset(path, rollouts, processes=0, on_finding=reported.append, **settings)
    return report, reported


def found_in(write_dataset: Write, *nodes: dict[str, Any], **changes: Any) -> Found:
    _, reported = findings(write_dataset(problem(*nodes, **changes)))
    return [(one.code, one.node_id) for one in reported]


def test_a_sound_dataset_has_no_finding(write_dataset: Write) -> None:
    report, reported = findings(write_dataset(problem(*SOUND)))
    assert reported == []
    assert (report.good_rows, report.bad_rows, report.nodes) == (1, 0, 2)
    assert not report.fails(strict=True)


FINAL = node("f", "48-6=42", is_final=True)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        # Nodes that nothing or nearly everything matches.
        ([node("x", "$$", "  "), FINAL], [(Code.UNMATCHABLE_NODE, "x")]),
        ([node("x", "$7$"), FINAL], [(Code.SINGLE_CHARACTER, "x"), (Code.ENUMERABLE, "x")]),
        ([node("x", "k"), FINAL], [(Code.SINGLE_CHARACTER, "x")]),
        # 48 and 42 are values of two digits; 48 is printed by 0, 1, … 300.
        (
            [node("x", "84"), FINAL],
            [(Code.BARE_VALUE, "x"), (Code.ENUMERABLE, "x")],
        ),
        ([node("x", "= 84"), FINAL], [(Code.BARE_VALUE, "x"), (Code.ENUMERABLE, "x")]),
        ([node("x", "1/2"), FINAL], [(Code.BARE_VALUE, "x")]),
        ([node("x", "1234"), FINAL], []),
        ([node("x", "= 145"), FINAL], [(Code.ENUMERABLE, "x")]),
        # In the problem's own text: words, an equation in other words, a number under a name.
        ([node("x", "4 eggs each"), FINAL], [(Code.ECHO, "x")]),
        ([node("x", "2t+4s=38"), FINAL], [(Code.ECHO, "x")]),
        ([node("x", "N = 144"), FINAL], [(Code.ECHO, "x")]),
        ([node("x", "N = 144", "12*12=144"), FINAL], []),
        ([node("x", "n = 4"), FINAL], []),
        # Wordings.
        ([node("x", "12*4=49"), FINAL], [(Code.FALSE_EQUALITY, "x")]),
        ([node("x", "2=C(4,2)C(6,2)"), FINAL], [(Code.FALSE_EQUALITY, "x")]),
        ([node("x", "100/3=33.33"), FINAL], []),
        ([node("x", "2 dozen = 24 eggs"), FINAL], []),
        ([node("x", "5*9 = **45**", "9*5=45"), FINAL], [(Code.GARBLED, "x")]),
        ([node("x", "mod 210", "2*3*35=210"), FINAL], [(Code.GARBLED, "x")]),
        (
            [node("x", "12*4=49", "5*9=45="), FINAL],
            [(Code.FALSE_EQUALITY, "x"), (Code.GARBLED, "x")],
        ),
        ([node("x", "u=0", "h(1/4)=0"), FINAL], [(Code.MERGED_VALUES, "x")]),
    ],
)
def test_nodes_by_themselves(
    write_dataset: Write, nodes: list[dict[str, Any]], wanted: Found
) -> None:
    assert found_in(write_dataset, *nodes) == wanted


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        # The same conclusion twice: reported once, of the later node.
        ([node("a", "5*8=40"), node("b", "8*5=40"), FINAL], [(Code.DUPLICATE_NODES, "b")]),
        # Whoever writes b has written a.
        ([node("a", "=4000"), node("b", "5*800=4000"), FINAL], [(Code.IMPLIED_NODE, "a")]),
        # Only one of two ways to write b holds a.
        ([node("a", "=4000"), node("b", "5*800=4000", "it is 4 thousand"), FINAL], []),
        ([node("a", "5*8=40"), node("b", "5*80=400"), FINAL], []),
    ],
)
def test_nodes_among_each_other(
    write_dataset: Write, nodes: list[dict[str, Any]], wanted: Found
) -> None:
    assert found_in(write_dataset, *nodes) == wanted


@pytest.mark.parametrize(
    ("nodes", "changes", "wanted"),
    [
        ([], {}, [(Code.NO_NODES, None)]),
        (SOUND, {"ground_truth": None}, [(Code.NO_GROUND_TRUTH, None)]),
        (SOUND, {"problem": " "}, [(Code.NO_PROBLEM_TEXT, None)]),
        (SOUND[:1], {"ground_truth": "5"}, [(Code.NO_FINAL_NODE, None)]),
        ([SOUND[0], node("n2", r"\boxed{42}", is_final=True)], {}, []),
        (
            [SOUND[0], node("n2", r"\boxed{7}", is_final=True)],
            {"ground_truth": "7"},
            [],
        ),
        ([SOUND[0], node("n2", "48-6=42")], {}, [(Code.UNMARKED_FINAL, "n2")]),
        # By value, in whatever words.
        (
            [SOUND[0], node("n2", "x = 0.5")],
            {"ground_truth": "\\frac{1}{2}"},
            [(Code.UNMARKED_FINAL, "n2")],
        ),
        (SOUND, {"ground_truth": "41"}, [(Code.FINAL_NOT_ANSWER, "n2")]),
        (
            [*SOUND, node("n3", "6*7=42", is_final=True)],
            {},
            [(Code.SEVERAL_FINAL_NODES, None)],
        ),
        ([SOUND[0] | {"weight": 0.5}, SOUND[1]], {}, [(Code.PARTIAL_WEIGHTS, None)]),
    ],
)
def test_problems_as_a_whole(
    write_dataset: Write, nodes: list[dict[str, Any]], changes: dict[str, Any], wanted: Found
) -> None:
    assert found_in(write_dataset, *nodes, **changes) == wanted


def test_absent_forms_count_when_nodes_are_matched(write_dataset: Write) -> None:
    nodes = [
        {"node_id": name, "expressions": [text]}
        for name, text in (("a", "5*8=40"), ("b", "40=8*5"))
    ]
    assert (Code.DUPLICATE_NODES, "b") in found_in(write_dataset, *nodes, FINAL)


def rollouts_of(count: int, response: str, problem_id: str) -> list[dict[str, Any]]:
    return [
        {"problem_id": problem_id, "response": f"{response} (attempt {attempt}). Answer: 42"}
        for attempt in range(count)
    ]


def test_rollouts_show_nodes_that_unrelated_ones_hit_and_nodes_that_nobody_hits(
    write_dataset: Write,
) -> None:
    # Rollouts of q hit "a common phrase" of p two times in twenty, and no rollout hits n2.
    dataset = write_dataset(
        problem(node("common", "therefore"), node("rare", "48-6=42", is_final=True)),
        problem(*SOUND, problem_id="q"),
        problem(*SOUND, problem_id="r", data_source="other"),
    )
    rows = [
        *rollouts_of(2, "Therefore 48-6=42 and 12*4=48", "q"),
        *rollouts_of(18, "12*4=48, then 48-6=42", "q"),
        *rollouts_of(3, "Therefore it is so", "p"),
        *rollouts_of(2, "No idea", "r"),
        {"problem_id": "nobody", "response": "?"},
    ]
    path = write_dataset(*rows, name="rollouts.jsonl")
    report, reported = findings(dataset, path)
    of_rollouts = [
        (one.code, one.problem_id, one.node_id)
        for one in reported
        if one.code in (Code.UNRELATED_MATCH, Code.NEVER_MATCHED)
    ]
    # The final node is the same in p and q: 20 of 20 others hit p's.  Of q's nodes only 3
    # others were seen, too few; r has 2 rollouts, too few.
    assert of_rollouts == [
        (Code.UNRELATED_MATCH, "p", "common"),
        (Code.UNRELATED_MATCH, "p", "rare"),
        (Code.NEVER_MATCHED, "p", "rare"),
    ]
    assert (report.rollouts, report.unknown_rollouts) == (26, 1)
    [rare, common] = report.examples[Code.UNRELATED_MATCH]
    assert [rare.node_id, common.node_id] == ["rare", "common"]
    assert common.message == "is matched by 10.0 % of other rollouts"


def test_a_rare_equation_is_hit_with_other_names(write_dataset: Write) -> None:
    equation = node("n1", "x + y = 8") | {"rare": ["x + y = 8"]}
    dataset = write_dataset(problem(equation), problem(*SOUND, problem_id="q"))
    path = write_dataset(*rollouts_of(20, "so a + b = 8", "q"), name="rollouts.jsonl")
    [found] = (one for one in findings(dataset, path)[1] if one.code is Code.UNRELATED_MATCH)
    assert (found.problem_id, found.node_id) == ("p", "n1")


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        ({}, True),
        ({"response": "48-6=42. Answer: 41"}, False),
        ({"correct": True, "model": "other"}, True),
        ({"correct": False, "model": "other"}, False),
        ({"acc": 0.0}, False),
        ({"correct": True, "model": "source"}, False),
        ({"correct": True, "rollout_id": "r1"}, False),
    ],
)
def test_nodes_are_looked_for_in_held_out_right_rollouts(
    write_dataset: Write, row: dict[str, Any], counts: bool
) -> None:
    made_of = [{"rollout_id": "r0", "model": "source"}, {"rollout_id": "r1", "model": None}]
    dataset = write_dataset(problem(*SOUND, metadata={"construction": {"rollouts": made_of}}))
    rows = [response | row for response in rollouts_of(3, "48-6=42", "p")]
    report, found = findings(dataset, write_dataset(*rows, name="rollouts.jsonl"))
    never = [one for one in found if one.code is Code.NEVER_MATCHED]
    assert [(one.node_id, one.text) for one in never] == ([("n1", "12*4=48")] if counts else [])
    assert (report.compared, report.of(Code.NEVER_MATCHED)) == ((2, 2) if counts else (0, 0))
    if counts:
        assert never[0].message == "is matched by none of 3 held-out right rollouts"


@pytest.mark.parametrize("metadata", [{"construction": 1}, {"construction": {"rollouts": [1, {}]}}])
def test_metadata_of_any_kind_name_no_sources(
    write_dataset: Write, metadata: dict[str, Any]
) -> None:
    dataset = write_dataset(problem(*SOUND, metadata=metadata))
    rollouts = write_dataset(*rollouts_of(3, "12*4=48", "p"), name="rollouts.jsonl")
    assert findings(dataset, rollouts)[0].compared == 2


def test_an_attack_that_pays_better_than_being_wrong_is_a_warning(write_dataset: Write) -> None:
    dataset = write_dataset(problem(*SOUND))
    rollouts = write_dataset(
        {"problem_id": "p", "response": "No idea.", "correct": False}, name="rollouts.jsonl"
    )
    report, found = findings(dataset, rollouts, probes=True)
    cheap = [one for one in found if one.code is Code.CHEAP_ATTACK]
    assert report.counts[Code.CHEAP_ATTACK] == len(cheap) > 0
    assert {one.line for one in cheap} == {0}
    assert "wrong rollouts score 0.0 %" in cheap[0].message
    assert report.fails(strict=True) and not report.fails()


def test_the_report_counts_all_and_keeps_the_worst(write_dataset: Write) -> None:
    # Of the nodes with one, two, … false wordings out of three, the first with most come first.
    wrong = [[f"{n}*2=1" if n <= bad else "1*2=2" for n in (1, 2, 3)] for bad in (1, 3, 2, 3)]
    rows = [problem(node("x", *texts), FINAL, problem_id=f"p{n}") for n, texts in enumerate(wrong)]
    report, reported = findings(write_dataset(*rows), examples=2)
    false = report.examples[Code.FALSE_EQUALITY]
    assert report.counts[Code.FALSE_EQUALITY] == 4
    assert [one.problem_id for one in false] == ["p1", "p3"]
    assert (false[0].text, false[0].message) == ("1*2=1", "has a false expression")
    assert len(reported) == sum(report.counts.values())
    assert (report.of(Code.FALSE_EQUALITY), report.of(Code.NO_FINAL_NODE)) == (8, 4)


def test_worst_comes_first_in_the_report(write_dataset: Write) -> None:
    report, _ = findings(write_dataset(problem(node("x", "12*4=49")), problem(problem_id="q")))
    severities = [code.severity for code, _, _ in report.by_code()]
    assert severities == sorted(severities, key=list(Severity).index)
    result = json.loads(json.dumps(report.to_json()))
    assert result["findings"][0]["code"] == "false_equality"
    assert result["severities"]["error"] == 1


def test_good_rows_come_through_and_bad_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    lines = [
        json.dumps(
            {"problem_id": "a", "nodes": [{"expressions": ["1+1=2"]}], "answer_rule": "auto"}
        ),
        "{not json",
        json.dumps({"problem_id": "a"}),
        json.dumps({"problem_id": "b", "answer_rule": "dapo"}),
        json.dumps({"problem_id": "c", "split": 1, "nodes": 2}),
        json.dumps({"problem_id": "d"}),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    reported: list[DatasetFinding] = []
    good = [(line, one.problem_id) for line, one in checked_problems(path, reported.append)]
    assert good == [(1, "a"), (6, "d")]
    assert {one.code for one in reported} == {Code.SCHEMA}
    assert [(one.line, one.problem_id) for one in reported] == [
        (2, None),
        (3, "a"),
        (4, "b"),
        (5, "c"),
    ]
    assert "is not JSON" in reported[0].message
    assert "repeats that of line 1" in reported[1].message
    assert "differs from 'auto' of line 1" in reported[2].message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "no such file"),
        ("", "is empty"),
        ("this is\nno dataset\n", "is not a dataset: no line is a row"),
        ('{"problem_id": "p", "response": "r"}', "is a file of rollouts; give a dataset here"),
    ],
)
def test_a_file_that_is_not_a_dataset_stops(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    path = tmp_path / "d.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=sentence):
        findings(path)
