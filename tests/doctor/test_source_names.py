"""Names that source code uses."""

from __future__ import annotations

from pathlib import Path

from consensuspr.doctor.verl_config import calls, hydra_config, used_names

CODE = '''
"""A docstring that names in_a_docstring does not read it."""
import hydra

# in_a_comment
in_an_assignment = 1

class Config:
    in_a_field: int = 1

@hydra.main(config_path="config", config_name="trainer", version_base=None)
def main(config, as_argument=None):
    config.trainer.as_attribute
    config.get("as_text")
    OmegaConf.select(config, "dotted.text")
    loop.migrate(config)
'''


def test_names_count_where_a_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/main.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("def (")
    names = used_names([tmp_path])
    assert {"as_attribute", "as_text", "as_argument", "dotted", "text"} <= names
    assert not names & {"in_a_docstring", "in_a_comment", "in_an_assignment", "in_a_field"}


def test_calls_and_configuration_of_a_trainer(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(CODE)
    assert hydra_config(file) == ("config", "trainer")
    assert calls(file, "migrate")
    assert not calls(file, "as_text")


def test_a_module_without_hydra(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("x = 1")
    assert hydra_config(file) == (None, None)
