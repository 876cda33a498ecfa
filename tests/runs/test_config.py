"""The keys that a config knows, for naming the nearest to an unknown one."""

from __future__ import annotations

from gradstarve.runs.config import RunConfig
from gradstarve.runs.config_keys import known_keys, nearest_key


def test_every_level_is_known_and_unions_are_joined() -> None:
    keys = known_keys(RunConfig)
    assert {"seed", "loss.kl", "model.warm_start.steps", "model.lora.rank", "dataset.prompt.user", "model.id"} <= set(
        keys
    )
    assert "dataset.largest_operand" in keys and "dataset.train_path" in keys
    assert not [key for key in keys if "discriminator" in key]


def test_the_nearest_key_or_where_to_look() -> None:
    assert nearest_key("model.warm_start.step", RunConfig).startswith("Did you mean 'model.warm_start.steps'")
    assert nearest_key("zzzqq", RunConfig) == "See `python run.py --cfg job`."
