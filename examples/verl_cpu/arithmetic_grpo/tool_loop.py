"""An agent loop with a tool: the policy writes, a tool shows the worked solution, it writes again.

The tool's text holds every node and the right answer, and earns nothing: only the policy's text is
scored (docs/guides/verl.md, "Agent loops").  The tool answers after every first turn, because a
model of this size would have to learn a format of calls first.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.workers.rollout.replica import TokenOutput

from .problems import read_chain

# The user's message, the policy's, the tool's, the policy's.
TURNS = 4
# A turn of the policy: a little more than the longest solution has.
MOST_TOKENS = 40
# Fields that a trajectory takes from its last turn.
NEWEST = ("global_steps", "max_global_steps")


def tool_text(problem: str) -> str:
    """Return the message of the tool: the solution, below a mark that no solution has."""
    return f"start with\n{read_chain(problem).solution}\n"


class SolutionToolLoop(AgentLoopBase):  # type: ignore[misc]
    """Two turns of the policy, and the tool between them."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Return one trajectory; `row` is that of the data."""
        messages = list(row["raw_prompt"])
        prompt = await self.ct_build_initial_tokens(messages)
        ids, mask, first = await self._turn(prompt, [], sampling_params)
        answer = self.tokenizer.decode(first.token_ids)
        before = [*messages, {"role": "assistant", "content": answer}]
        after = [*before, {"role": "tool", "content": tool_text(messages[-1]["content"])}]
        merged, mask, _ = await self.ct_merge_context_msg(before, after, ids, mask)
        ids, mask, last = await self._turn(merged.token_ids, mask, sampling_params)
        newest = {name: last.extra_fields[name] for name in NEWEST if name in last.extra_fields}
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=ids[len(prompt) :],
            response_mask=mask,
            num_turns=TURNS,
            metrics={},
            extra_fields={**first.extra_fields, **newest, "turn_scores": [], "tool_rewards": []},
        )

    async def _turn(
        self, ids: list[int], mask: list[int], sampling_params: dict[str, Any]
    ) -> tuple[list[int], list[int], TokenOutput]:
        """Let the policy go on; return all tokens, the mask behind the prompt, and the new part."""
        output = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=ids,
            sampling_params={**sampling_params, "max_tokens": MOST_TOKENS},
        )
        merged, mask, _ = await self.ct_merge_assistant_token(ids, output.token_ids, mask)
        return merged.token_ids, mask, output
