"""Configuration: strict, with errors that name the key and the fix."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.config import Config, dump_yaml, load_config
from opensearch_vl.errors import ConfigError


class Walks(Config):
    seed: int = 0
    hub: int | str = "auto"


class Run(Config):
    walks: Walks = Walks()
    name: str = "run"
    rates: tuple[float, ...] = (0.4, 0.4, 0.2)


def test_defaults_then_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("walks: {seed: 3}\nname: a\n")
    config = load_config(Run, file, ["walks.seed=5", "rates=[1.0]"])
    assert (config.walks.seed, config.name, config.rates) == (5, "a", (1.0,))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("walks.sed=1", "did you mean 'seed'"),
        ("wlaks.seed=1", "did you mean 'walks'"),
        ("walks.seed=x", "walks.seed"),
        ("name.first=x", "name"),
        ("walks.seed", "a.b=value"),
        ("=3", "a.b=value"),
        ("walks.seed={", "not a YAML value"),
    ],
)
def test_a_wrong_override_is_named(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(Run, None, [override])


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "!!python/object:os.system {}", "\x00"])
def test_a_wrong_file_is_a_config_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load_config(Run, file)
    with pytest.raises(ConfigError, match="no config file"):
        load_config(Run, tmp_path / "missing.yaml")


@given(st.integers(), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_yaml_round_trip(seed: int, name: str) -> None:
    config = Run(walks=Walks(seed=seed), name=name)
    assert Run.model_validate(yaml.safe_load(dump_yaml(config))) == config
