"""Every recipe, composed and checked by verl's own code, says what it means and nothing unread."""

from __future__ import annotations

import copy
import itertools
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

with warnings.catch_warnings():
    # Third parties' own, at import.
    warnings.simplefilter("ignore")
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    import consensuspr.client.verl.plugin  # registers the reward manager

import consensuspr.launch
from consensuspr.client.verl import ConsensusRewardManager
from consensuspr.client.verl.config import OLD_GROUPS, ManagerConfig
from consensuspr.errors import InputError
from consensuspr.launch.plan import Training, make_plan
from consensuspr.launch.recipes import MODELS, Override
from consensuspr.launch.request import Algorithm, Request
from consensuspr.scoring.rewards import RewardKind

VERL = Path(verl.__file__).parent
RECIPES = list(itertools.product(Algorithm, MODELS, RewardKind))
ADDRESS = "127.0.0.1:50051"

# Third parties' own; and verl says in a warning that GRPO has no critic.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Disabled critic as:UserWarning"),
]

# "Training Details" of the paper's appendix and section 5.1; NAME.path is the model's.
PAPER: dict[str, Any] = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 256,
    "data.max_prompt_length": 2048,
    "data.max_response_length": 4096,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.prompt_length": 2048,
    "actor_rollout_ref.rollout.response_length": 4096,
    "trainer.n_gpus_per_node": 4,
    "trainer.nnodes": 1,
}
PAPER_OF: dict[str, dict[str, Any]] = {
    "grpo": {
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.001,
        "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    },
    "dapo": {
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        "reward.reward_kwargs.overlong_buffer_cfg.enable": True,
        "reward.reward_kwargs.overlong_buffer_cfg.len": 512,
        "reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": 1.0,
        "reward.reward_kwargs.max_resp_len": 4096,
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Files that a recipe needs to exist."""
    tmp_path = tmp_path_factory.mktemp("files")
    for name in ("train.parquet", "val.parquet", "problems.jsonl"):
        (tmp_path / name).touch()
    return {
        "train_files": (str(tmp_path / "train.parquet"),),
        "val_files": (str(tmp_path / "val.parquet"),),
        "dataset": tmp_path / "problems.jsonl",
        "log_dir": tmp_path,
    }


def training(files: dict[str, Any], recipe: tuple[str, str, str], *own: str) -> Training:
    algorithm, model, reward = recipe
    request = Request(algorithm=algorithm, model=model, reward=reward, **files)
    return make_plan(request, own, {}).training


def composed(arguments: list[str]) -> Any:
    """Return the configuration that main_ppo would get for its arguments."""
    return copy.deepcopy(_composed(tuple(arguments)))


@cache
def _composed(arguments: tuple[str, ...]) -> Any:
    with initialize_config_dir(str(VERL / "trainer/config"), version_base=None):
        return compose("ppo_trainer", overrides=list(arguments))


def arguments_of(planned: Training) -> list[str]:
    """Return what stands behind ``-m verl.trainer.main_ppo``."""
    return planned.command(ADDRESS)[3:]


@pytest.mark.parametrize("recipe", RECIPES, ids="-".join)
def test_verl_composes_and_accepts_a_recipe(
    recipe: tuple[str, str, str], files: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    algorithm, model, reward = recipe
    config = composed(arguments_of(training(files, recipe)))
    # What main_ppo does before anything else, and the conversions of its workers.
    validate_config(
        config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    assert "All configuration checks passed" in capsys.readouterr().out
    assert need_reference_policy(config) is (algorithm == "grpo")
    assert not need_critic(config)
    for path in (
        "algorithm",
        "actor_rollout_ref.actor",
        "actor_rollout_ref.rollout",
        "actor_rollout_ref.ref.fsdp_config",
    ):
        omega_conf_to_dataclass(OmegaConf.select(config, path))
    # The reward, as the manager reads it out of the whole configuration.
    OmegaConf.resolve(config)
    manager = ManagerConfig.of(config)
    assert (manager.settings.reward, manager.settings.answer_rule) == (reward, "dapo")
    assert (manager.settings.address, manager.settings.alpha) == (ADDRESS, 0.5)
    assert manager.settings.switch_epoch == 1
    assert manager.settings.dataset_path == files["dataset"]
    assert (manager.overlong is not None) is (algorithm == "dapo")
    assert resolve_reward_manager_cls(config) is ConsensusRewardManager
    for key, value in (PAPER | PAPER_OF[algorithm]).items():
        assert OmegaConf.select(config, key) == value, key
    assert config.actor_rollout_ref.model.path.lower() == f"qwen/{MODELS[model]}-base"


@pytest.mark.parametrize("recipe", RECIPES, ids="-".join)
def test_what_a_recipe_does_not_name_is_verls_default(
    recipe: tuple[str, str, str], files: dict[str, Any]
) -> None:
    planned = training(files, recipe)
    named = {Override.parse(text).key for text in arguments_of(planned)}
    recipes, default = (_leaves(composed(given)) for given in (arguments_of(planned), []))
    changed = {key for key, value in recipes.items() if default.get(key, "absent") != value}
    assert default.keys() <= recipes.keys()
    assert changed <= named


RECIPE_KEYS = sorted(
    {
        Override.parse(line).key
        for path in Path(consensuspr.launch.__file__).parent.rglob("*.overrides")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
)

# Read only to say that it is ignored.
WARNED_OF = {"algorithm.filter_groups.max_num_gen_batches"}


def is_read(key: str) -> bool:
    """Say whether code of verl, or for the reward's settings our manager, looks at a key."""
    if key.startswith("reward.reward_kwargs."):
        return True  # by the manager, which refuses what it does not know
    group, leaf = key.partition(".")[0], key.rpartition(".")[2]
    if group in OLD_GROUPS or key in WARNED_OF:
        return False
    return re.search(rf"\b{leaf}\b", code_of_verl()) is not None


@pytest.mark.parametrize("key", RECIPE_KEYS)
def test_verl_reads_every_key_of_the_recipes(key: str) -> None:
    """A key that Hydra accepts is worth nothing where no code of verl looks at it."""
    assert is_read(key), f"no code of verl {verl.__version__} reads it"


@cache
def code_of_verl() -> str:
    """Return verl's code without what only declares settings or belongs to no trainer of today."""
    declared = ("trainer/config/", "workers/config/", "workers/reward_manager/")
    sources = sorted(VERL.rglob("*.py"))
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in sources
        if not path.relative_to(VERL).as_posix().startswith(declared)
    )


# verl 0.9 accepts these and does not look at them, or hands them on unseen.
IGNORED = [
    "custom_reward_function.path=reward.py",
    "custom_reward_function.name=f",
    "reward_model.reward_manager=dapo",
    "reward_model.enable=True",
    "+reward_model.reward_kwargs.overlong_buffer_cfg.len=512",
    "+reward_model.overlong_buffer.len=512",
    "sandbox_fusion.url=http://127.0.0.1",
    "+reward.reward_kwargs.alhpa=0.3",
    "+reward.reward_kwargs.overlong_buffer.len=512",
    "+reward.reward_kwargs.overlong_buffer_cfg.length=512",
    "+reward.reward_kwargs.overlong_buffer_len=512",
    "reward.reward_manager=consensuspr",
]


@pytest.mark.parametrize("override", IGNORED)
def test_a_key_that_verl_would_ignore_is_refused_before_it_gets_there(
    override: str, files: dict[str, Any]
) -> None:
    # Alone it passes Hydra, which is why somebody has to look.
    composed([override])
    name = override.lstrip("+").partition("=")[0].removeprefix("reward.reward_kwargs.")
    with pytest.raises(InputError, match=re.escape(name)):
        training(files, ("dapo", "4b", "linear"), override)


def test_the_groups_that_verl_has_left_behind_are_known() -> None:
    legacy = OmegaConf.load(VERL / "trainer/config/legacy_reward_impl.yaml")
    assert set(legacy) == set(OLD_GROUPS)


@pytest.mark.parametrize(
    "value",
    ["a b", "it's", "x=1,y=[2]", "${data.x}", "null", "1e-3", "007", "C:\\dir\\", "\\'", "é", "+"],
)
def test_a_path_arrives_as_it_was_given(value: str, files: dict[str, Any]) -> None:
    folder = Path(files["dataset"]).parent / "odd"
    folder.mkdir(exist_ok=True)
    path = folder / value
    path.touch()
    planned = training(files | {"train_files": (str(path), str(path))}, ("grpo", "4b", "linear"))
    config = composed(arguments_of(planned))
    assert OmegaConf.to_container(config.data.train_files, resolve=False) == [str(path)] * 2


def _leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of a configuration by their dotted keys, interpolations as written."""
    plain = OmegaConf.to_container(config, resolve=False)
    found: dict[str, Any] = {}

    def walk(value: Any, key: str) -> None:
        if isinstance(value, dict) and value:
            for name, item in value.items():
                walk(item, f"{key}.{name}" if key else str(name))
        else:
            found[key] = value

    walk(plain, prefix)
    return found
