"""The reward in the real verifiers, plugged into a task by its configuration; a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed: make test-trainers")

# Of what verifiers imports.
pytestmark = pytest.mark.filterwarnings("ignore")

CHAT = [
    vf.UserMessage(content="What is 1 and 1?"),
    vf.AssistantMessage(content="", reasoning_content="1+1=2"),
    vf.ToolMessage(tool_call_id="t", content="2+2=4 Answer: 2"),
    vf.AssistantMessage(content="Answer: 2"),
]


class Data(vf.TaskData):  # type: ignore[misc, name-defined]
    problem_id: str | None = None
    ground_truth: str | None = None


class Task(vf.Task):  # type: ignore[misc, name-defined]
    pass


def trace_of(data: Any) -> Any:
    nodes = [
        vf.MessageNode(
            parent=at - 1 if at else None,
            message=message,
            sampled=isinstance(message, vf.AssistantMessage),
        )
        for at, message in enumerate(CHAT)
    ]
    trace = vf.trace
    task = trace.TraceTask(type="Task", data=data)
    return trace.Trace(task=task, agent=trace.AgentInfo(config=vf.AgentConfig()), nodes=nodes)


async def score(folder: Path, address: str, settings: str = "", **fields: Any) -> Any:
    """Score a trace as verifiers does, with the reward of a file that the configuration names."""
    # A name of its own: verifiers imports a file once.
    file = folder / f"rewards_{len(list(folder.iterdir()))}.py"
    file.write_text(
        "from consensuspr.client.verifiers import consensus_reward\n"
        f"consensus = consensus_reward(address={address!r}, {settings})\n"
    )
    config = vf.TaskConfig.model_validate({"rewards": {"ncr_half": {"fn": f"{file}:consensus"}}})
    data = Data(prompt="What is 1 and 1?", **fields)
    trace = trace_of(data)
    await Task(data, config).score(trace)
    return trace


async def test_a_reward_of_the_configuration(address: str, tmp_path: Path) -> None:
    trace = await score(tmp_path, address, problem_id="toy/1", ground_truth="2")
    assert trace.reward == 0.75, "the thought counts, and no word of the tool"
    assert trace.metrics == {
        "consensuspr/acc": 1.0,
        "consensuspr/ncr": 0.5,
        "consensuspr/ncr_raw": 0.5,
        "consensuspr/guard": 1.0,
    }
    assert trace.info["consensuspr"]["status"] == "OK"
    assert trace.to_record()["info"] == trace.info, "it travels with the trace"


async def test_a_task_is_known_by_its_id_too(address: str, tmp_path: Path) -> None:
    assert (await score(tmp_path, address, id="toy/1")).reward == 0.75
    assert (
        await score(tmp_path, address, "reward='curriculum', epoch=0", id="toy/1")
    ).reward == 0.5


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("", "problem 'nobody' ended with UNKNOWN_PROBLEM"),
        ("reward='curriculum'", "verifiers tells a reward neither step nor epoch"),
    ],
)
async def test_a_failure_is_no_reward(
    address: str, tmp_path: Path, settings: str, sentence: str
) -> None:
    with pytest.raises(vf.TaskError, match=sentence):
        await score(tmp_path, address, settings, id="nobody")
