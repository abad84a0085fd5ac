"""The reward in the real verifiers, plugged into a task by its configuration; a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client.verifiers import consensus_reward, step_advantages

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


def trace_of(data: Any, chat: list[Any] = CHAT) -> Any:
    nodes = [
        vf.MessageNode(
            parent=at - 1 if at else None,
            message=message,
            sampled=isinstance(message, vf.AssistantMessage),
        )
        for at, message in enumerate(chat)
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
        "consensuspr/unanswered": 0.0,
    }
    assert trace.info["consensuspr"]["status"] == "OK"
    assert trace.to_record()["info"] == trace.info, "it travels with the trace"


async def test_the_environment_for_the_hub(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel of its source distribution alone has tasks and a reward, and loads by its name."""
    folder = repository / "examples" / "consensus_nodes"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    [source] = tmp_path.glob("*.tar.gz")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(source)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    away = {"address": "127.0.0.1:1", "timeout_s": 1, "alpha": 0.3}
    taskset = {"id": "owner/consensus-nodes@0.1.0", "task": {"consensuspr": away}}
    env = vf.load_environment(vf.resolve_env_config({"taskset": taskset}))
    task = next(iter(env.taskset))
    trace = trace_of(task.data, [vf.AssistantMessage(content="14 * 118 = 1652. Answer: 111")])
    await task.score(trace)
    assert trace.reward == pytest.approx(0.3 + 0.7 / 5), "scored in this process, by settings"


class Bytes:
    """A tokenizer of a token for each byte."""

    @staticmethod
    def decode(ids: list[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return bytes(ids).decode(errors="replace")


def trace_of_tokens(*turns: str, prompt: str = "<user>", **fields: Any) -> Any:
    """A trace as training has it: every second message is the policy's, the others a tool's."""
    trace = trace_of(Data(prompt="What is 1 and 1?", **fields))
    trace.nodes = []
    for at, text in enumerate(["What is 1 and 1?", *turns]):
        own = at % 2 == 1
        message = vf.AssistantMessage(content=text) if own else vf.UserMessage(content=text)
        scaffold = prompt.encode()
        ids = [*scaffold, *text.encode()]
        mask = [False] * len(scaffold) + [own] * (len(ids) - len(scaffold))
        trace.nodes.append(
            vf.MessageNode(
                parent=at - 1 if at else None,
                message=message,
                sampled=own,
                token_ids=ids,
                mask=mask,
            )
        )
    return trace


def assigned(trace: Any, values: list[float]) -> list[float]:
    """Return the advantages of a trace's tokens once a list was handed to its nodes in order."""
    own = [node for node in trace.nodes if any(node.mask)]
    assert len(values) == sum(sum(node.mask) for node in own)
    for node in own:
        node.advantages, values = values[: sum(node.mask)], values[sum(node.mask) :]
    [branch] = trace.branches
    advantages: list[float] = branch.advantages
    return advantages


async def test_step_credit_reaches_the_tokens_that_reached_nodes(address: str) -> None:
    """Of two responses with the same end, the node is worth a step to the one that has it."""
    reward = consensus_reward(address=address, tokenizer=Bytes())
    first = "é so 1+1=2"
    traces = [
        trace_of_tokens(first, "2+2=4 says the tool", "Answer: 2", id="toy/1"),
        trace_of_tokens("hm", "2+2=4 says the tool", "Answer: 2", id="toy/1"),
        trace_of_tokens("1+1=2. Answer: 5", id="toy/1"),
    ]
    for trace in traces:
        value = await reward(trace.task.data, trace)
        trace.rewards["consensus"] = vf.trace.Reward(score=value)
    assert [trace.reward for trace in traces] == [0.75, 0.5, 0.25]
    reached, last = len(first.encode()) - 1, len(first.encode()) + len("Answer: 2") - 1
    assert traces[0].info["consensuspr"]["by_token"] == [(reached, 0.25), (last, 0.5)]
    lists = step_advantages(traces, by_std=False)
    # Up to the node all are compared, behind it those that have it: 0.75 and 0.25.
    assert lists[0] == [0.25] * (reached + 1) + [0.25] * len("Answer: 2")
    assert lists[1] == [0.0] * len("hmAnswer: 2")
    assert lists[2] == [-0.25] * len("1+1=2. Answer: 5")
    spread = assigned(traces[0], lists[0])
    assert len(spread) == len(traces[0].branches[0].token_ids)
    assert [value != 0.0 for value in spread] == traces[0].branches[0].sampled_mask
    record = json.loads(json.dumps(traces[0].to_record()["info"]))
    assert record["consensuspr"]["by_token"] == [[reached, 0.25], [last, 0.5]]


async def test_without_tokens_the_messages_are_scored(address: str) -> None:
    trace = trace_of(Data(prompt="What is 1 and 1?", id="toy/1"))
    assert (
        await consensus_reward(address=address, tokenizer=Bytes())(trace.task.data, trace) == 0.75
    )
    assert "by_token" not in trace.info["consensuspr"]
    assert step_advantages([trace]) == [[]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("", "problem 'nobody' ended with NO_NODES: problem 'nobody' is not in the dataset"),
        ("without_nodes='acc'", "problem 'nobody' is not in the dataset"),
        ("reward='curriculum'", "verifiers passes a reward neither step nor epoch"),
    ],
)
async def test_a_failure_is_no_reward(
    address: str, tmp_path: Path, settings: str, sentence: str
) -> None:
    with pytest.raises(vf.TaskError, match=sentence):
        await score(tmp_path, address, settings, id="nobody", ground_truth="2")
