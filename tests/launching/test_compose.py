from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from gradstarve.launching.compose import Composer

CONF = Path(__file__).resolve().parent.parent.parent / "conf"

AXES = [
    ["advantage=tasa", "advantage=grpo", "advantage=pkpo", None],
    ["model=smollm2_135m", None],
    ["dataset=gsm8k", None],
    ["dataset@evaluation=math500", "dataset@evaluation=longer_sums", None, None],
    ["seed=-7", "seed=43", "++seed=44", "seed='45'", "seed=abc", "seed=null", None],
    ["learning_rate=1e-5", "learning_rate=3", "completion_limit=${steps}", "learning_rate=nan", None],
    ["optimizer.beta1=0.5", "optimizer={beta1: 0.1, beta2: 0.2}", "~optimizer.beta2", "optimizer=null", None],
    ["evaluation.limit=20", "evaluation.name='a b'", "+evaluation.extra=1", "+new={a: [1, {b: 2}]}", None],
    ["dry_run=true", "outputs='${oc.env:HOME}/x'", "outputs=???", "outputs='a,b=c'", "tracker.name=''", None],
    ["rollout.temperature=0.7", "rollout.top_p=1", "rollout.vllm={a: 1}", "loss=[1,2]", None],
]


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoader]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


def as_hydra_does(loader: ConfigLoader, overrides: list[str]) -> dict[str, Any]:
    config = loader.load_configuration("config", ["hydra.mode=RUN", *overrides], RunMode.RUN)
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return plain


def test_composed_configs_are_exactly_those_of_hydra(loader: ConfigLoader) -> None:
    composer = Composer(loader, "config", ["hydra.mode=RUN"])
    rng = random.Random(0)
    failed = 0
    for _ in range(25):
        overrides = [text for axis in AXES if (text := rng.choice(axis)) is not None]
        rng.shuffle(overrides)
        try:
            expected = as_hydra_does(loader, overrides)
        except Exception as error:
            failed += 1
            with pytest.raises(type(error)):
                composer.compose(overrides)
            continue
        # repr tells 1 from 1.0 and from True, and NaN from nothing.
        assert repr(composer.compose(overrides)) == repr(expected), overrides
    assert failed < 18


@pytest.mark.parametrize("overrides", [["sed=3"], ["advantage=sgin"], ["seed.x=3"], ["+seed=3"], ["optimizer.beta=1"]])
def test_what_hydra_refuses_is_refused(loader: ConfigLoader, overrides: list[str]) -> None:
    with pytest.raises(HydraException) as ours:
        Composer(loader, "config", []).compose(overrides)
    with pytest.raises(HydraException) as theirs:
        as_hydra_does(loader, overrides)
    assert str(ours.value) == str(theirs.value)


def test_no_other_data_set_is_asked_by_default_and_by_null(loader: ConfigLoader) -> None:
    """Hydra itself refuses a null that was typed."""
    composer = Composer(loader, "config", [])
    assert composer.compose(["dataset@evaluation=null", "seed=1"]) == composer.compose(["seed=1"])
    assert composer.compose(["dataset@evaluation=longer_sums"])["evaluation"]["dataset"]["name"] == "longer_sums"


def test_a_copy_is_given_out_each_time(loader: ConfigLoader) -> None:
    composer = Composer(loader, "config", [])
    first = composer.compose(["seed=1"])
    first["optimizer"]["beta1"] = 0
    assert composer.compose(["seed=1"])["optimizer"]["beta1"] == 0.9
