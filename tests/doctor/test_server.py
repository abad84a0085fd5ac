"""What a server says about itself, compared with this install and with the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.doctor.checks import check_versions, choose_dataset, meet
from consensuspr.scoring.answers import ANSWER_VERSION
from consensuspr.version import VERSION
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines

Serve = Callable[..., ServerInfo]


@pytest.fixture
def info() -> Serve:
    """Describe a server of this version with some datasets."""

    def described(*names: str) -> ServerInfo:
        return ServerInfo(
            server_version=VERSION,
            protocol_version=1,
            normal_form_version=NORMAL_FORM_VERSION,
            answer_version=ANSWER_VERSION,
            core_backend="native",
            datasets=tuple(DatasetInfo(n, "sha256:" + "0" * 64, 50, 0, 0, 0, 2) for n in names),
            max_response_bytes=1,
            max_message_bytes=1,
            max_rollouts=1,
            max_inline_nodes=1,
            max_expressions_per_node=1,
            max_expression_bytes=1,
            max_inline_bytes=1,
        )

    return described


def test_versions(info: Serve, lines: Lines) -> None:
    assert lines(check_versions(info()))[0].startswith("ok versions: protocol 1, normal form ")
    older = replace(info(), server_version="0.0.1", normal_form_version="0")
    assert lines(check_versions(older)) == [
        f"warn versions: release 0.0.1 there and {VERSION} here, normal form 0 there and"
        f" {NORMAL_FORM_VERSION} here → install the same version on both sides; scores made here"
        " may differ from the server's"
    ]


@pytest.mark.parametrize(
    ("names", "wanted", "line"),
    [
        (["a"], None, "ok dataset: 'a': 50 problems, 2 of them without nodes, sha256:000"),
        (["a", "b"], "b", "ok dataset: 'b': 50 problems"),
        (["a", "b"], None, "FAIL dataset: the server has several ('a', 'b') and none is named"),
        (["a"], "b", "FAIL dataset: the server has no 'b', it has 'a'"),
    ],
)
def test_the_dataset(
    info: Serve, lines: Lines, names: list[str], wanted: str | None, line: str
) -> None:
    chosen, finding = choose_dataset(info(*names), wanted)
    assert lines(iter([finding]))[0].startswith(line)
    assert (chosen is not None) == line.startswith("ok")


def test_an_address_that_is_none(lines: Lines) -> None:
    met, finding = meet("no-port", 1.0)
    assert met is None
    assert lines(iter([finding])) == [
        "FAIL server: address must be HOST:PORT, got 'no-port' → give its address as HOST:PORT"
    ]
