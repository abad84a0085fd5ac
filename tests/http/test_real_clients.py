"""The trainers' own client code against a real server.

OpenRLHF cannot be installed beside a light test environment (it pins CUDA builds), but the
modules that ask for rewards can be loaded from its wheels alone: ``pip download --no-deps
openrlhf==0.9.0`` and so on into the folder that ``CONSENSUSPR_OPENRLHF_WHEELS`` names.
slime is in no package index; its client is an aiohttp session of exactly this use.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.http.conftest import InProcessServer

PROMPT = "<|im_start|>user\nHow much?<|im_end|>\n<|im_start|>assistant\n"
BOTH = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. Answer: 18<|im_end|>"
HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 3<|im_end|>"

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """Load one module of one release of OpenRLHF, its sleeps cut short."""

    def from_wheel(release: str, module: str) -> ModuleType:
        folder = os.environ.get("CONSENSUSPR_OPENRLHF_WHEELS")
        if folder is None:
            pytest.skip("CONSENSUSPR_OPENRLHF_WHEELS names no folder of OpenRLHF's wheels")
        wheels = list(Path(folder).glob(f"openrlhf-{release}-*.whl"))
        if not wheels:
            pytest.skip(f"{folder} has no wheel of OpenRLHF {release}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            [name] = [n for n in wheel.namelist() if n.endswith(f"/openrlhf/utils/{module}.py")]
            path = Path(wheel.extract(name, tmp_path))

        def remote(target: Any) -> Any:
            target.remote = target
            return target

        ray = SimpleNamespace(remote=remote, get=lambda results: results)
        quiet = SimpleNamespace(init_logger=logging.getLogger)
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setitem(sys.modules, "openrlhf.utils.logging_utils", quiet)
        spec = importlib.util.spec_from_file_location(f"_openrlhf_{module}", path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return from_wheel


def test_openrlhf_that_sends_a_step_at_once(
    server: InProcessServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("requests", reason="OpenRLHF asks with requests")
    client = load("0.9.0", "remote_rm_utils")
    url = f"http://{server.http_address}/openrlhf"
    # Two servers for one rollout: the second one gets none.
    model = client.RemoteRewardModel(SimpleNamespace(), [url, url])
    first, second = model.get_rewards([PROMPT + HALF], [PROMPT], ["ducks"])
    assert (first["rewards"], first["scores"], second["rewards"]) == ([0.25], [0.25], [])
    assert first["extra_logs"].keys() == second["extra_logs"].keys()

    pauses: list[float] = []
    monkeypatch.setattr(client.time, "sleep", pauses.append)
    with pytest.raises(Exception, match="Request error for 5 times"):
        model.get_rewards(["?", "?"], ["hello", "hello"], ["?", "?"])
    assert sum(pauses) >= 5, "five tries, and then the step fails: no zeros"


def test_openrlhf_that_asks_for_each_rollout(
    server: InProcessServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp", reason="OpenRLHF asks with aiohttp")
    client = load("0.11.2", "agent")
    sleep = asyncio.sleep
    monkeypatch.setattr(client.asyncio, "sleep", lambda seconds: sleep(0))
    source = f"http://{server.http_address}/openrlhf?scores=acc"

    def outcome(problem_id: str) -> Any:
        executor = client.SingleTurnAgentExecutor([source])
        label = json.dumps({"problem_id": problem_id})
        return asyncio.run(executor.execute(PROMPT, label, PARAMS, 4096, Tokenizer(), Engine(HALF)))

    output = outcome("ducks")
    assert (output["reward"], output["scores"]) == ([0.25], [0.0])
    assert output["extra_logs"]["ncr"] == [0.5]
    # It goes on with None, which its trainer cannot use as a reward either.
    output = outcome("nope")
    assert (output["reward"], output["scores"]) == (None, None)


def test_slime(server: InProcessServer) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="slime asks with aiohttp")
    payload = {"prompt": PROMPT, "response": HALF, "label": "ducks"}

    async def ask(query: str, **changes: str) -> Any:
        connector = aiohttp.TCPConnector(limit=64, enable_cleanup_closed=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                f"http://{server.http_address}/slime{query}", json=payload | changes
            ) as response,
        ):
            response.raise_for_status()
            return await response.json()

    assert asyncio.run(ask(""))["reward"] == 0.25
    assert asyncio.run(ask("?reply=number")) == 0.25
    with pytest.raises(aiohttp.ClientResponseError, match="422"):
        asyncio.run(ask("", label="nope"))


PARAMS = SimpleNamespace(max_tokens=1024, logprobs=None)


class Tokenizer:
    """A token for each character."""

    def __call__(self, text: str, **options: Any) -> Any:
        ids = [ord(character) for character in text]
        return {"input_ids": [SimpleNamespace(tolist=lambda: ids)]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids))


class Engine:
    """Generates always the same."""

    def __init__(self, response: str) -> None:
        self._ids = [ord(character) for character in response]

    async def generate(self, prompt: list[int], params: Any, multi_modal_data: Any) -> Any:
        output = SimpleNamespace(token_ids=self._ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])
