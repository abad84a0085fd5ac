"""The training loop of examples/study: against verl's GRPO, Hugging Face's Llama, a real server."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: run make test-verl")

import torch
from arithmetic_grpo.model import Llama, generate, response_log_probs, save, warm_up

from consensuspr.client import LocalClient, Rollout
from consensuspr.core import Matcher
from consensuspr.data import open_writer, problem_to_row, read_problems
from consensuspr.scoring.types import Score, Status
from examples.study import inputs, task, weak
from examples.study.arms import (
    ARMS,
    SWAPPED,
    counted,
    formal,
    random_nodes,
    shuffled,
)
from examples.study.grpo import group_advantages, permuted, policy_loss, problem_order
from examples.study.inputs import TOKENS
from examples.study.runner import (
    HERE,
    Plan,
    Run,
    Study,
    chosen_rates,
    counting_runs,
    rate_runs,
    second_runs,
)

# On a busy machine, threads of torch wait for each other most of the time.
torch.set_num_threads(1)

# Importing verl alone takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def stories() -> list[task.Story]:
    return list(islice(task.draw_stories(1), 40))


@pytest.fixture(scope="module")
def model() -> Llama:
    """A model that has learned next to nothing: its responses end anywhere."""
    model = Llama(len(TOKENS.words), seed=0)
    solutions = inputs.solutions(task.draw_stories(2), random.Random(0))
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
    multinomial = torch.multinomial

    def record(probabilities: Any, count: int, generator: Any) -> Any:
        chosen = multinomial(probabilities, count, generator=generator)
        drawn.append(probabilities.gather(1, chosen)[:, 0])
        return chosen

    monkeypatch.setattr(torch, "multinomial", record)
    longer = list(islice(task.draw_stories(3, (4,)), 4))
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
        prompt, text = TOKENS.prompt(story.text), task.write(story.operations(rng), style)
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
def client(
    stories: list[task.Story], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalClient]:
    path = tmp_path_factory.mktemp("study") / "author.jsonl"
    with open_writer(path) as out:
        for number, story in enumerate(stories):
            out.write(problem_to_row(story.problem(f"train-{number}", "train")))
    with LocalClient(dataset=path) as client:
        yield client


@pytest.mark.parametrize("style", task.STYLES)
def test_every_right_way_covers_the_author_s_nodes(
    client: LocalClient, stories: list[task.Story], style: str
) -> None:
    rng = random.Random(1)
    rollouts = [
        Rollout(f"train-{number}", task.write(story.operations(rng), style))
        for number, story in enumerate(stories)
        for _ in range(4)
    ]
    assert len({rollout.response for rollout in rollouts}) > 2 * len(stories)
    spec = weak.REWARDS["answered"]
    for score in client.score(rollouts, reward=spec, answer_rule="dapo"):
        assert (score.acc, score.ncr, score.guard, score.reward) == (1, 1, 1, 1)
        # Three stages of two nodes, of which the last states the answer.
        assert score.num_nodes == 5


@pytest.mark.parametrize("style", task.STYLES)
def test_a_slip_costs_nodes_in_every_style(
    client: LocalClient, stories: list[task.Story], style: str
) -> None:
    """Equations are found in any style, and one that is wrong reaches no node."""
    for number, story in enumerate(stories[:10]):
        ways = story.operations(random.Random(number))
        left, sign, right = ways[2]
        text = task.write([*ways[:2], (left + 1, sign, right), *ways[3:]], style)
        assert task.style_of(text) == style
        assert len(task.equations_in(text)) == 6
        spec = ARMS["linear"].reward
        [score] = client.score([Rollout(f"train-{number}", text)], reward=spec, answer_rule="dapo")
        assert score.num_matched == 4


def test_responses_end_at_the_arm_s_limit(model: Llama, stories: list[task.Story]) -> None:
    for most in (1, 64, 192):
        assert max(map(len, _sampled(model, stories[:8], 8, most)[1])) == most


def test_without_a_generator_each_token_is_the_most_likely(
    model: Llama, stories: list[task.Story]
) -> None:
    prompts = [TOKENS.prompt(story.text) for story in stories[:4]]
    responses = generate(model, TOKENS, prompts, 1, None, 64)
    for prompt, response in zip(prompts, responses, strict=True):
        likely = model.logits(model(torch.tensor([prompt + response]))).argmax(dim=-1)[0]
        assert likely[len(prompt) - 1 : -1].tolist() == response


def test_shuffled_problems_have_the_nodes_of_others(stories: list[task.Story]) -> None:
    problems = [story.problem(f"train-{n}", "train") for n, story in enumerate(stories)]
    mixed = shuffled(problems, seed=1)
    own = [counted(problem) for problem in problems]
    theirs = [counted(problem) for problem in mixed]
    assert all(a != b for a, b in zip(own, theirs, strict=True))
    assert sorted(map(repr, own)) == sorted(map(repr, theirs))
    assert [p.ground_truth for p in mixed] == [p.ground_truth for p in problems]


def test_random_nodes_are_as_many_and_as_often_reached(stories: list[task.Story]) -> None:
    """From texts of which half are wrong somewhere; what they reach tells little of the rest."""
    rng = random.Random(7)
    rates, of_random, together = [], [], []
    for number, story in enumerate(stories):
        problem = story.problem(f"train-{number}", "train")
        texts = []
        for _ in range(48):
            ways = story.operations(rng)
            wrong = [(left + rng.choice((0, 0, 1, 2)), sign, right) for left, sign, right in ways]
            texts.append(task.write(wrong, rng.choice(task.STYLES)))
        covers = inputs.covers(problem)
        of_chance = random_nodes(problem, texts, covers, seed=3)
        assert len(of_chance.nodes) == len(counted(problem))
        assert of_chance == random_nodes(problem, texts, covers, seed=3)
        by_chance = inputs.covers(of_chance)
        real = [sum(covers(text)) for text in texts]
        chance = [sum(by_chance(text)) for text in texts]
        rates.append(sum(real) / len(texts) / 5)
        of_random.append(sum(chance) / len(texts) / 5)
        together.append(torch.corrcoef(torch.tensor([real, chance]).float())[0, 1].item())
    assert sum(of_random) == pytest.approx(sum(rates), rel=0.1)
    assert abs(sum(together) / len(together)) < 0.2


def test_a_weak_start_has_the_noise_that_leaves_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def share(noise: float, *_: Any, **__: Any) -> float:
        looks.append(noise)
        return max(0.0, 0.1 - noise / 4)

    monkeypatch.setattr(inputs, "_right_throughout", share)
    monkeypatch.setattr(inputs.Inputs, "problems", lambda self: {"selection": []})
    monkeypatch.setattr(inputs.Inputs, "model", lambda self, number, noise: noise)
    of = inputs.Inputs(tmp_path)
    noise, left = of.weak_start(0, 0.01)
    assert 0.008 <= left <= 0.012 and left == pytest.approx(0.1 - noise / 4, abs=1e-4)
    assert of.weak_start(1, 0.03) != (noise, left)
    count = len(looks)
    assert of.weak_start(0, 0.01) == (noise, left) and len(looks) == count
    with pytest.raises(SystemExit, match=r"leaves 20.0% of its responses right throughout"):
        of.weak_start(0, 0.2)


@pytest.mark.parametrize("name", [weak.UNSOLVED, weak.BUDGETS])
def test_right_solutions_of_the_unsolved_problems_keep_their_reward(
    tmp_path: Path, name: str
) -> None:
    plan = weak.WeakPlan(train=12, test=1)
    weak.write_unsolved(plan, tmp_path)
    path = weak.unsolved(tmp_path, name)
    stored = [problem.budget is not None for problem in read_problems(path)]
    assert stored == [name == weak.BUDGETS] * plan.train + [False]
    stories = islice(task.draw_stories(weak.UNSOLVED_SEED, (weak.UNSOLVED_STAGES,)), plan.train)
    rollouts = [
        Rollout(f"train-{number}", task.write(story.operations(random.Random(number)), style))
        for number, story in enumerate(stories)
        for style in task.STYLES
    ]
    with LocalClient(dataset=path) as client:
        for spec in weak.REWARDS.values():
            scores = client.score(rollouts, reward=spec, answer_rule="dapo")
            assert {score.reward for score in scores} == {1}


def test_the_table_of_weak_starts_pairs_the_arms_by_seed() -> None:
    watched = dict.fromkeys(("throughout", "ncr", "by_code", "unanswered", "stated", "greedy"), 0.5)

    def row(arm: str, seed: int, acc: float) -> dict[str, Any]:
        run = {"kind": weak.USUAL, "arm": arm, "seed": seed}
        return {"run": run, "before": {"acc": 0.02, **watched}, "after": {"acc": acc, **watched}}

    table = weak.weak_table(
        [row(weak.BEFORE, 0, 0.1), row("written", 0, 0.3), row(weak.BEFORE, 1, 0.2),
         row("written", 1, 0.4), row("written", 2, 0.5)]
    )  # fmt: skip
    before, written = table.splitlines()[2:]
    assert before.startswith("| usual | computed | 2 | 2.0% → 15.0% |") and before.endswith("– |")
    assert written.startswith("| usual | written | 3 | 2.0% → 40.0% |") and "| +20.0 (" in written


def test_permuted_rewards_permute_the_ncrs_of_each_group() -> None:
    """What a response reached does not decide which NCR it gets; what it answered counts."""
    scores = [
        Score(status=Status.OK, acc=float(n % 2), ncr=n / 16, reward=n % 2 / 2 + n / 32)
        for n in range(16)
    ]
    own = [given.reward or 0.0 for given in scores]
    rng = random.Random(4)
    drawn = [permuted(own, scores, 0.5, 8, rng) for _ in range(4000)]
    for rewards in drawn[:20]:
        for start in (0, 8):
            left = [r - 0.5 * (n % 2) for n, r in enumerate(rewards[start : start + 8])]
            reached = [0.5 * (given.ncr or 0.0) for given in scores[start : start + 8]]
            assert sorted(left) == pytest.approx(sorted(reached))
    means = [sum(column) / len(drawn) for column in zip(*drawn, strict=True)]
    expected = [0.5 * (n % 2) + 0.5 * ((0, 8)[n >= 8] + 3.5) / 16 for n in range(16)]
    assert means == pytest.approx(expected, abs=0.01)


def test_any_answer_line_has_the_node_of_form(stories: list[task.Story]) -> None:
    [node] = formal(stories[0].problem("train-0", "train")).nodes
    reached = Matcher([node.expressions], expand=True).match
    assert reached("7+5=12\nAnswer: 3") == [True]
    assert reached("7+5=12\n7") == [False]


def test_seeds_that_choose_rates_are_used_for_nothing_else() -> None:
    plan = Plan()
    tries = rate_runs(plan)
    rates = SWAPPED | {run.arm: run.learning_rate for run in tries}
    runs = counting_runs(plan, rates)
    assert not {run.seed for run in tries} & {run.seed for run in runs}
    assert len({run.name for run in [*tries, *runs]}) == len(tries) + len(runs)
    primary = [run for run in runs if run.arm == "linear"]
    assert sorted(run.warm_start for run in primary) == [0] * 4 + [1] * 4 + [2] * 4


def test_the_committed_results_are_those_of_the_plan() -> None:
    study = Study(HERE, Plan())
    rates = SWAPPED | chosen_rates(study.plan, study.results(rate_runs(study.plan)))
    runs = [*counting_runs(study.plan, rates), *second_runs(study.plan)]
    assert len(study.results(runs)) == len(runs) == 208


def _study(folder: Path) -> Study:
    """Return a study with inputs and without results."""
    study = Study(folder, Plan())
    study.inputs.folder.mkdir()
    study.inputs.facts.write_text(json.dumps({"digest": "of these inputs"}))
    return study


def test_the_table_keeps_every_row_and_takes_lines_at_its_end(tmp_path: Path) -> None:
    """Those that `gzip -c more.jsonl >> results.jsonl.gz` adds, too."""
    study = _study(tmp_path)
    runs = [*rate_runs(study.plan), *weak.WeakPlan().runs()]
    study.add(study.identity(runs[0]))
    lines = "".join(f"{json.dumps(study.identity(run))}\n" for run in runs[1:])
    with study.table.open("ab") as out:
        out.write(gzip.compress(lines.encode()))
    assert [Run(**row["run"]) for row in study.results(runs)] == runs
    study.add(study.identity(replace(runs[0], seed=901)))
    assert len(study.rows()) == len(runs) + 1


def test_a_failed_run_keeps_the_results_of_the_others(tmp_path: Path) -> None:
    study = _study(tmp_path)
    runs = rate_runs(study.plan, ("outcome", "linear"))
    rows = {run: {**study.identity(run), "cpu_seconds": 1.0} for run in runs[:6]}
    lines: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyError):
            study.do(runs, rows.__getitem__, pool, lines.append)
        assert study.results(runs) == list(rows.values())
        assert len(lines) == 6
        study.do(runs[:6], rows.__getitem__, pool, lines.append)
    assert len(lines) == 6, "finished runs are done again"


def test_the_rate_with_the_best_accuracy_is_chosen_and_of_equals_the_lower() -> None:
    def tried(arm: str, rate: float, seed: int, acc: float) -> dict[str, Any]:
        run = {"arm": arm, "learning_rate": rate, "seed": seed}
        return {"run": run, "final": {"selection": {"acc": acc}}}

    plan = Plan(rates=(1e-4, 3e-4), rate_seeds=(100, 101))
    results = [
        *(tried("max", 3e-4, seed, 0.2) for seed in (100, 101)),
        *(tried("max", 1e-4, seed, 0.2) for seed in (100, 101)),
        tried("linear", 1e-4, 100, 0.5),
        tried("linear", 1e-4, 101, 0.1),
        tried("linear", 3e-4, 100, 0.35),
        tried("linear", 3e-4, 101, 0.3),
        # Not all of its tries are there yet.
        *(tried("format", 3e-4, seed, 0.9) for seed in (100, 101)),
    ]
    rates = chosen_rates(plan, results)
    assert rates == {"max": 1e-4, "linear": 3e-4}
    assert {run.arm for run in counting_runs(plan, rates)} == {"max", "linear", "built-linear"}


def _write_result(study: Study, run: Run, acc: float) -> None:
    names = ("throughout", "ncr", "ncr_wrong", "stated", "duplicates", "tokens", "unended")
    figures = {"acc": acc, **dict.fromkeys((*names, *task.STYLES), 0.5)}
    curves = {name: [0.1, 0.2] for name in ("acc", "ncr", "throughout")}
    result = {
        **study.identity(run),
        "commit": "c0ffee",
        "machine": "a core",
        "curve": {"step": [0, 20], **curves},
        "final": dict.fromkeys(("held-out", "longer", "selection"), figures),
        "cpu_seconds": 360.0,
    }
    study.add(result)


def test_a_page_is_written_once_all_runs_are_there(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from examples.study.__main__ import PAGE, SMOKE, report

    study = replace(_study(tmp_path), plan=SMOKE)
    rates = dict.fromkeys(ARMS, 3e-4) | SWAPPED
    runs = [*rate_runs(SMOKE), *counting_runs(SMOKE, rates), *second_runs(SMOKE)]
    for run in runs[:-1]:
        _write_result(study, run, 0.5 + 0.1 * (run.arm == "linear"))
    page = Path(shutil.copy(PAGE, tmp_path))
    with pytest.raises(SystemExit, match="has 3 of 4 runs"):
        report(folder=tmp_path, page=page, smoke=True)
    _write_result(study, runs[-1], 0.5)
    report(folder=tmp_path, page=page, smoke=True)
    text = page.read_text()
    assert "| linear − outcome | 1 | +10.0 |" in text and "| linear − outcome | 12 |" not in text
    pictures = re.findall(r"\(images/(.+?)\)", text)
    assert len(pictures) == 4
    assert all((tmp_path / "images" / name).exists() for name in pictures)
    study.inputs.facts.write_text(json.dumps({"digest": "of others"}))
    with pytest.raises(SystemExit, match="of other inputs or settings"):
        report(folder=tmp_path, page=page, smoke=True)


def test_a_seed_asks_every_problem_once_before_any_twice() -> None:
    asked = list(islice(problem_order(30, seed=4), 90))
    assert all(sorted(asked[n : n + 30]) == list(range(30)) for n in (0, 30, 60))
    assert asked[:30] != asked[30:60]
    assert asked == list(islice(problem_order(30, seed=4), 90))
