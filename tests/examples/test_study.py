"""The training loop of examples/study: against verl's GRPO and Hugging Face's Llama; its runs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: run make test-verl")

import torch
from arithmetic_grpo import model as of_examples
from arithmetic_grpo.model import Llama, generate, response_log_probs, save, warm_up

from consensuspr.client import LocalClient
from consensuspr.core import Matcher
from consensuspr.scoring.types import Score, Status
from examples.study import task
from examples.study.grpo import (
    EVALUATED,
    Policy,
    figures,
    group_advantages,
    permuted_rewards,
    policy_loss,
    problem_order,
    score,
)
from examples.study.model import TOKENS, StudyModel, load_start, rounded, sample, save_start
from examples.study.nodes import Nodes, Problems, counted, random_nodes, shuffled
from examples.study.plan import ARMS, LEVELS, RATES, Plan, Run, area, chosen_rates, starts
from examples.study.runner import HERE, Study, Table
from examples.study.starts import Inputs, _closest, _solutions

# On a busy machine, threads of torch wait for each other most of the time.
torch.set_num_threads(1)

# Importing verl alone takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def stories() -> list[task.Story]:
    return list(islice(task.draw_stories(1), 12))


@pytest.fixture(scope="module")
def problems() -> Problems:
    return Problems.drawn(train=40, evaluated=8)


@pytest.fixture(scope="module")
def model() -> Llama:
    """A model that has learned next to nothing: its responses end anywhere."""
    model = StudyModel(seed=0)
    solutions = _solutions(task.draw_stories(2), random.Random(0))
    warm_up(model, TOKENS, solutions, steps=5, batch=64)
    return model


def _sampled(
    model: Llama, stories: list[task.Story], samples: int, max_tokens: int = 64
) -> tuple[list[list[int]], list[list[int]]]:
    prompts = [TOKENS.prompt(story.text) for story in stories]
    generator = torch.Generator().manual_seed(5)
    responses = generate(model, TOKENS, prompts, samples, generator, max_tokens)
    return [prompt for prompt in prompts for _ in range(samples)], responses


def test_advantages_loss_and_gradient_are_those_of_verl(
    model: Llama, stories: list[task.Story]
) -> None:
    """One batch: eight groups of eight, rewards of the linear formula, a group of equal ones."""
    pytest.importorskip("verl", reason="verl is not installed: run make test-verl")
    from verl.trainer.ppo.core_algos import (
        compute_grpo_outcome_advantage,
        compute_policy_loss_vanilla,
    )
    from verl.workers.config import FSDPActorConfig

    prompts, responses = _sampled(model, stories[:8], 8)
    rng = random.Random(3)
    rewards = [rng.choice((0, 1)) * 0.5 + rng.randrange(6) / 10 for _ in responses]
    # A number that single precision has exactly: of others verl makes rounding an advantage.
    rewards[:8] = [0.5] * 8
    longest = max(map(len, responses))
    mask = torch.tensor([[n < len(r) for n in range(longest)] for r in responses]).float()
    at_the_end = torch.zeros_like(mask)
    for row, response in enumerate(responses):
        at_the_end[row, len(response) - 1] = rewards[row]
    groups = torch.arange(len(responses)) // 8
    theirs, _ = compute_grpo_outcome_advantage(at_the_end, mask, groups.numpy())
    ours = group_advantages(rewards, 8)[:, None] * mask
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not ours[:8].any()
    assert ours[8:].any()

    config = FSDPActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=64)
    log_probs = response_log_probs(model, prompts, responses)
    their_loss, _ = compute_policy_loss_vanilla(
        old_log_prob=log_probs.detach(),
        log_prob=log_probs,
        advantages=theirs,
        response_mask=mask,
        loss_agg_mode="token-mean",
        config=config,
    )
    model.zero_grad()
    their_loss.backward()
    gradient = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    num_tokens = int(mask.sum())
    # In parts, as the loop does it.
    total = 0.0
    for start in range(0, len(responses), 32):
        part = slice(start, start + 32)
        log_probs = response_log_probs(model, prompts[part], responses[part])
        loss = policy_loss(log_probs, ours[part, : log_probs.shape[1]], num_tokens)
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(their_loss.item(), rel=1e-5, abs=1e-7)
    for parameter, their_gradient in zip(model.parameters(), gradient, strict=True):
        torch.testing.assert_close(parameter.grad, their_gradient, rtol=1e-4, atol=1e-7)


def test_sampling_is_from_the_model_that_is_trained(
    model: Llama, stories: list[task.Story], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of several lengths, rows that end and leave: every probability is the model's."""
    drawn: list[Any] = []
    draw = of_examples._draw

    def record(logits: Any, generator: Any) -> Any:
        chosen = draw(logits, generator)
        drawn.append(logits.softmax(dim=-1).gather(1, chosen[:, None])[:, 0])
        return chosen

    monkeypatch.setattr(of_examples, "_draw", record)
    longer = list(islice(task.draw_stories(3, (5,)), 4))
    prompts, responses = _sampled(model, [*stories[:4], *longer], 4)
    assert len({len(prompt) for prompt in prompts}) > 1
    lengths = {len(response) for response in responses}
    assert len(lengths) > 1, "none ended before another"
    probabilities = response_log_probs(model, prompts, responses).exp()
    firsts = torch.stack(drawn[: min(lengths)], dim=1)
    torch.testing.assert_close(firsts, probabilities[:, : min(lengths)], rtol=1e-4, atol=1e-6)
    # Behind the first end rows leave the batch: what goes on is among what was drawn.
    for number, row in enumerate(drawn):
        going = torch.tensor([len(response) > number for response in responses])
        expected = probabilities[going, number]
        assert (expected[:, None] - row).abs().min(dim=1).values.max() < 1e-5


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([[0.0, 2.0, -math.inf, 1.0], [3.0, -1.0, 0.0, -math.inf]])
    generator = torch.Generator().manual_seed(0)
    chosen = of_examples._draw(logits.repeat(20_000, 1), generator).view(-1, 2)
    for row, expected in enumerate(logits.softmax(dim=-1)):
        shares = chosen[:, row].bincount(minlength=4) / 20_000
        torch.testing.assert_close(shares, expected, rtol=0, atol=0.02)
        assert not shares[expected == 0].any()


def test_hugging_face_s_llama_is_the_same_model(
    model: Llama,
    stories: list[task.Story],
    tmp_path: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    save(model, TOKENS, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rng = random.Random(0)
    for story, style in zip(stories, [*task.STYLES] * 3, strict=False):
        prompt = TOKENS.prompt(story.text)
        text = task.write(story.operations(rng), style, story.answer)
        messages = [{"role": "user", "content": story.text}]
        assert prompt == tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        response = TOKENS.encode(text)
        assert response == tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(response) == TOKENS.decode(response) == text
        assert TOKENS.ids["<unknown>"] not in prompt + response
        ids = torch.tensor([prompt + response])
        with torch.no_grad():
            expected = theirs(ids).logits
            torch.testing.assert_close(model.logits(model(ids)), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def client(problems: Problems) -> Iterator[LocalClient]:
    of_random = {problem.problem_id: [["1+1=2"]] * 4 for problem in problems.train}
    with problems.scoring(list(Nodes), of_random) as client:
        yield client


@pytest.mark.parametrize("style", task.STYLES)
def test_every_right_way_has_the_whole_reward(
    client: LocalClient, problems: Problems, style: str
) -> None:
    rng = random.Random(1)
    drawn = {story.text: story for story in islice(task.draw_stories(50), 200)}
    known = [problem for problem in problems.train if problem.problem in drawn] * 4
    assert len(known) > 40
    of = [drawn[problem.problem] for problem in known]
    texts = [task.write(story.operations(rng), style, story.answer) for story in of]
    assert len(set(texts)) > 2 * len(known) / 4
    assert max(len(TOKENS.response(text)) for text in texts) <= 41
    for name, arm in ARMS.items():
        scores = score(client, known, texts, arm.reward, arm.nodes)
        if name in ("random", "shuffled"):
            assert all((s.ncr or 0) < 0.5 and s.acc == 1 for s in scores)
            continue
        # Three stages of two nodes, of which the last two stages state the answer.
        seen = {(s.acc, s.ncr, s.guard, s.reward, s.num_nodes) for s in scores}
        assert seen == {(1, 1, 1, 1, 4)}, name
    scores = score(client, known, texts, EVALUATED, Nodes.AUTHOR)
    of_texts = figures(texts, [1] * len(texts), scores, 80)
    assert {of_texts[name] for name in ("acc", "throughout", "stated", style)} == {1}


@pytest.mark.parametrize("style", task.STYLES)
def test_a_right_answer_behind_a_slip_is_not_right_throughout(
    client: LocalClient, problems: Problems, style: str
) -> None:
    drawn = {story.text: story for story in islice(task.draw_stories(50), 200)}
    for problem in problems.train[:10]:
        story = drawn[problem.problem]
        ways = story.operations(random.Random(0))
        left, sign, right = ways[2]
        slip = (left + 1, sign, right)
        text = task.write([*ways[:2], slip, *ways[3:]], style, story.answer)
        assert task.style_of(text) == style
        assert len(task.equations_in(text)) == 6
        scores = score(client, [problem], [text], EVALUATED, Nodes.AUTHOR)
        # In code, the result before the slip may not be written any more.
        assert scores[0].acc == 1 and scores[0].num_matched in (5, 4 if style == "code" else 5)
        assert figures([text], [1], scores, 80)["throughout"] == 0


@pytest.mark.parametrize(
    ("answer", "acc"), [("{0}, {1}", 1), ("{1}, {0}", 0), ("{1}", 0), ("{0}, 100", 0), ("", 0)]
)
def test_both_parts_of_the_answer_have_to_be_right(
    client: LocalClient, problems: Problems, answer: str, acc: int
) -> None:
    problem = problems.train[0]
    text = f"Answer: {answer.format(*str(problem.ground_truth).split(', '))}"
    [given] = score(client, [problem], [text], ARMS["linear"].reward, Nodes.AUTHOR)
    assert given.acc == acc


def test_no_operation_carries(stories: list[task.Story]) -> None:
    for story in stories:
        for left, sign, right in (o for s in story.stages for way in s.ways for o in way):
            assert right > 99 and 99 < task.result_of((left, sign, right)) < 1000
            for one, other in zip(*(map(int, f"{n:03}") for n in (left, right)), strict=True):
                digit = {"+": one + other, "-": one - other, "*": left * other}[sign]
                assert 0 <= digit <= 9


def test_equations_of_any_text_are_judged() -> None:
    text = "```python\na=206-208\n```\n3*120=360\n101 plus 2 is 104\nb=7=7\n"
    stated = task.equations_in(text)
    assert stated == ["206-208=-2", "3*120=360", "101+2=104"]
    assert list(map(task.is_true, stated)) == [True, True, False]


def test_no_problem_is_in_two_sets() -> None:
    problems = Problems.drawn(60, 40)
    sizes = [len(getattr(problems, name)) for name in problems.__dataclass_fields__]
    assert sizes == [60, 40, 20, 20, 40]
    assert len(problems.texts) == sum(sizes)
    assert problems == Problems.drawn(60, 40)


def test_shuffled_problems_have_the_nodes_of_others(problems: Problems) -> None:
    mixed = shuffled(problems.train, seed=1)
    own = [counted(problem) for problem in problems.train]
    theirs = [counted(problem) for problem in mixed]
    assert all(a != b for a, b in zip(own, theirs, strict=True))
    assert sorted(map(repr, own)) == sorted(map(repr, theirs))
    assert [p.budget for p in mixed] == [p.budget for p in problems.train]
    assert all(problem.budget is not None for problem in mixed)
    [first, *_] = problems.dataset(Nodes.UNBUDGETED, {})
    assert first == replace(problems.train[0], budget=None)


def test_random_nodes_are_as_many_and_reached_as_often_by_steps_as_by_others(
    stories: list[task.Story],
) -> None:
    """By texts that they are not made of too; half of the equations are wrong."""
    rng = random.Random(7)
    by_steps = by_all = 0
    for number, story in enumerate(stories):
        problem = story.problem(f"train-{number}", "train")
        texts = []
        for _ in range(96):
            ways = story.operations(rng)
            # Some are stated often and some once.
            off = (0, 0, 0, 1, 2, rng.randrange(3, 50))
            wrong = [(left + rng.choice(off), sign, right) for left, sign, right in ways]
            texts.append(task.write(wrong, rng.choice(task.STYLES), story.answer))
        made_of, texts = texts[:64], texts[64:]
        chance = random_nodes(problem, made_of, seed=3)
        assert len(chance) == len(counted(problem)) == 4
        assert chance == random_nodes(problem, made_of, seed=3)
        steps = {equation for node in problem.nodes for equation in node.expressions}
        listed = sorted(set().union(*chance))
        reaches = Matcher([[equation] for equation in listed], expand=True).match
        for text in texts:
            found = set(compress(listed, reaches(text)))
            by_all += len(found)
            by_steps += len(found & steps)
    assert by_all > 500
    assert by_steps / by_all == pytest.approx(0.5, abs=0.07)


def test_permuted_ncr_stays_in_its_group_and_says_nothing_of_a_response() -> None:
    ncr = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]
    acc = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    scores = [Score(Status.OK, acc=a, ncr=n) for a, n in zip(acc, ncr, strict=True)]
    reward, rng = ARMS["permuted"].reward, random.Random(1)
    draws = torch.tensor([permuted_rewards(scores, reward, 4, rng) for _ in range(2000)])
    dealt = 2 * draws - torch.tensor(acc)
    assert all(sorted(draw[:4]) == ncr[:4] and draw[4:] == ncr[4:] for draw in dealt.tolist())
    torch.testing.assert_close(dealt.mean(dim=0)[:4], torch.full((4,), 0.375), atol=0.03, rtol=0)


def test_a_start_is_stored_in_8_bits(tmp_path: Path, model: Llama, problems: Problems) -> None:
    save_start(rounded(model), tmp_path / "start.npz")
    assert (tmp_path / "start.npz").stat().st_size < 360_000
    again = load_start(tmp_path / "start.npz")
    ids = torch.tensor([TOKENS.prompt(problems.train[0].problem)])
    with torch.no_grad():
        ours, theirs = model.logits(model(ids)), again.logits(again(ids))
    assert (ours - theirs).abs().max() < 0.02 * ours.abs().max()
    # What is rounded once stays as it is.
    for name, value in rounded(again).items():
        np.testing.assert_allclose(value, rounded(model)[name], rtol=1e-5, atol=0)


def test_the_start_with_the_nearest_share_is_taken() -> None:
    shares = {at: at**3 / 1e8 for at in range(5, 500, 5)}
    looked: list[int] = []

    def share(at: int) -> float:
        looked.append(at)
        return shares[at]

    assert _closest(sorted(shares), share, 0.01) == 100
    assert len(set(looked)) <= 7
    assert _closest(sorted(shares), share, 0.9) == 450


def test_a_step_whose_advantages_are_0_moves_by_momentum_alone(problems: Problems) -> None:
    """As in verl, where the gradient is 0 then, and not missing."""

    def moved(advantages: list[float], skipped: bool) -> list[torch.Tensor]:
        policy = Policy(StudyModel(seed=1), 1e-3, 0, 8)
        responses = sample(policy.model, problems.train[:4], 1, policy.generator, 8)
        prompts = [TOKENS.prompt(problem.problem) for problem in problems.train[:4]]
        policy.update(prompts, responses, torch.tensor([1.0, -1.0, 0.5, 0.0]))
        before = [p.detach().clone() for p in policy.model.parameters()]
        if skipped:
            policy.update(prompts, responses, torch.zeros(4))
        else:
            for parameter in policy.model.parameters():
                parameter.grad.zero_()
            policy.optimizer.step()
        return [p.detach() - old for p, old in zip(policy.model.parameters(), before, strict=True)]

    ours, theirs = moved([0.0] * 4, True), moved([0.0] * 4, False)
    assert any(change.any() for change in ours)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_a_seed_asks_every_problem_once_before_any_twice() -> None:
    asked = list(islice(problem_order(30, seed=4), 90))
    assert all(sorted(asked[n : n + 30]) == list(range(30)) for n in (0, 30, 60))
    assert asked[:30] != asked[30:60]
    assert asked == list(islice(problem_order(30, seed=4), 90))


def test_the_plan_has_the_runs_that_it_says() -> None:
    plan = Plan()
    runs = plan.runs(dict.fromkeys(ARMS, 1e-4))
    assert len(set(runs)) == len(runs) == 292
    parts = {part: [run for run in runs if run.part == part] for part in {r.part for r in runs}}
    assert {part: len(found) for part, found in parts.items()} == {
        "selection": 72, "main": 108, "groups": 16, "levels": 96,
    }  # fmt: skip
    assert not {run.seed for run in parts["selection"]} & {run.seed for run in parts["main"]}
    pairs = {(run.start, run.seed) for run in parts["main"] if run.arm == "linear"}
    assert len(pairs) == 12 and {start for start, _ in pairs} == {f"1-{x}" for x in "abcd"}
    assert {run.level for run in parts["levels"]} == LEVELS.keys() - {"1"}
    # Arms of a start and a seed share the random numbers, groups of both sizes too, and no others.
    streams = {run.stream for run in [*parts["main"], *parts["groups"]]}
    assert len(streams) == 12
    assert not streams & {run.stream for run in [*parts["selection"], *parts["levels"]]}


def _row(run: Run, height: float, **more: Any) -> dict[str, Any]:
    heights = [0.0, height, height]
    return {
        "run": dict(run.__dict__),
        "curve": {"step": [0, 100, 200], "greedy": heights},
        "final": {"greedy": height},
        "seconds": 60.0,
        **more,
    }


def test_the_rate_with_the_best_mean_area_is_chosen_and_of_equals_the_lower() -> None:
    plan = Plan(arms=("linear", "outcome"), main_starts=("1-a", "1-b"))
    heights = {
        ("linear", 1e-4): (0.9, 0.1), ("linear", 3e-4): (0.6, 0.5),
        ("outcome", 1e-4): (0.2, 0.2), ("outcome", 3e-4): (0.3, 0.1),
    }  # fmt: skip
    rows = [
        _row(run, heights[run.arm, run.learning_rate][run.start == "1-b"])
        for run in plan.selection()
    ]
    assert area(rows[0]) == pytest.approx(0.75 * rows[0]["final"]["greedy"])
    assert chosen_rates(rows) == {"linear": 3e-4, "outcome": 1e-4}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The study in small with inputs that are no models, and without results."""
    inputs = Inputs(tmp_path)
    for path in (inputs.start("1-a"), inputs.of_random("1")):
        path.write_bytes(b"made")
    plan = Plan(
        arms=("outcome", "linear"), levels=(), main_starts=("1-a",), main_seeds=(0,), group_seeds=()
    )
    return Study(plan, inputs, Table(tmp_path / "results.jsonl.gz"))


def test_a_killed_study_goes_on_where_it_was(study: Study) -> None:
    """Killed in a run, and while a row was written."""
    begun: list[Run] = []
    lines: list[str] = []

    def perform(run: Run) -> dict[str, Any]:
        begun.append(run)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return _row(run, 0.5 if run.learning_rate == RATES[1] else 0.1)

    with pytest.raises(KeyboardInterrupt):
        study.carry_out(perform, lines.append)
    whole = study.table.path.read_bytes()
    assert len(study.table.rows()) == 2
    # Half of a third row.
    study.table.path.write_bytes(whole + whole[:40])
    assert len(study.table.rows()) == 2
    study.carry_out(perform, lines.append)
    assert study.table.path.read_bytes().startswith(whole)
    assert len(begun) == 7 and len(study.table.rows()) == 6
    assert lines[-1].startswith("[6 of 6] main linear 0.0003 1-a 0: greedy Acc 50.0%")
    assert study.rates() == {"outcome": 3e-4, "linear": 3e-4}
    study.carry_out(perform, lines.append)
    assert len(begun) == 7, "finished runs are done again"


def test_rows_of_other_inputs_and_damaged_tables_stop_the_study(study: Study) -> None:
    study.carry_out(lambda run: _row(run, 0.5), lambda line: None)
    study.inputs.start("1-a").write_bytes(b"made again")
    with pytest.raises(SystemExit, match="has other inputs or settings"):
        study.rates()
    study.inputs.start("1-a").write_bytes(b"made")
    assert len(study.results(study.plan.selection(), complete=True)) == 4
    with study.table.locked(), pytest.raises(SystemExit, match="another command"):
        study.carry_out(lambda run: _row(run, 0.5), lambda line: None)
    data = bytearray(study.table.path.read_bytes())
    data[60] ^= 255
    study.table.path.write_bytes(data)
    with pytest.raises(SystemExit, match="is damaged from byte 0 on"):
        study.rates()


def test_the_committed_starts_are_those_of_the_plan() -> None:
    inputs = Inputs(HERE / "inputs")
    made = inputs.facts().keys()
    # The plan lets the starts of the highest level come later.
    assert set(starts(*LEVELS)) - made <= set(starts("40"))
    for name in made:
        assert inputs.digest(name)
        assert len(inputs.random_nodes(name.partition("-")[0])) == Plan().train
    assert sum(path.stat().st_size for path in inputs.folder.iterdir()) < 5_000_000
    # Another order of the vocabulary would give nonsense.
    problems = Problems.drawn(1, 32).held_out
    texts = map(TOKENS.text, sample(inputs.model("10-a"), problems, 1, None))
    right = [
        text.endswith(f"Answer: {problem.ground_truth}")
        for text, problem in zip(texts, problems, strict=True)
    ]
    assert sum(right) > 3
