"""slime's remote reward: ``{prompt, response, label}`` to an object, or to a number.

Read in its sources of 2025 and 2026: one request holds one rollout, and the reply, whatever
it is, becomes the sample's reward.  With ``--reward-key reward`` an object is right, and the
rest of it stays with the sample; without the setting it must be a number (``reply=number``).
The prompt is a text, or the messages of a chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from consensuspr.errors import InputError
from consensuspr.http.batch import Batches, Item, Outcome
from consensuspr.http.elements import Bounds, members, text, value
from consensuspr.http.naming import read_label
from consensuspr.http.options import Settings
from consensuspr.server.call import Call

# Far above any prompt; what is larger is decoded for nothing.
MAX_PROMPT_BYTES = 1 << 20

CHOICES: Mapping[str, Sequence[str]] = {"reply": ("object", "number")}


def answer(body: bytes, call: Call, settings: Settings, batches: Batches) -> object:
    """Answer one request with what is to be sent as JSON.

    Raises:
        Abort: nobody waits any more.
        InputError: the body has another shape.
        Unscorable: the rollout has no reward, and no number is given for it.
    """
    call.check()
    given = members(body).values
    for name in ("prompt", "response"):
        if name not in given:
            raise InputError(f"the body has no {name}")

    def items() -> Iterator[Item]:
        prompt = _prompt(body, given["prompt"])
        response = text(body, given["response"], "response")
        label = read_label(body, given.get("label"), "label")
        yield batches.item(prompt, response, label, settings.options)

    [outcome] = batches.score(items(), 1, settings, call)
    return outcome.reward if settings.choices["reply"] == "number" else _object(outcome)


def _object(outcome: Outcome) -> dict[str, object]:
    score = outcome.score
    return {
        "reward": outcome.reward,
        "acc": None if score is None else score.acc,
        "ncr": None if score is None else score.ncr,
        "num_nodes": 0 if score is None else score.num_nodes,
        "num_matched": 0 if score is None else score.num_matched,
        "status": outcome.status,
        "message": outcome.message,
        "unscorable": outcome.unscorable,
    }


def _prompt(body: bytes, bounds: Bounds) -> str:
    """Return the text of a prompt, of all messages where it is a chat."""
    if bounds.end - bounds.start > MAX_PROMPT_BYTES:
        raise InputError(
            f"prompt has {bounds.end - bounds.start} bytes, the limit is {MAX_PROMPT_BYTES}"
        )
    prompt = value(body, bounds, "prompt")
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise InputError(
            f"prompt must be a text or a list of messages, got {type(prompt).__name__}"
        )
    return "\n".join(part for message in prompt for part in _parts(message))


def _parts(message: object) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
    else:
        raise InputError("a message of prompt must have a content")
