"""Composing the configs of many runs as Hydra would, in a fraction of its time.

Hydra takes about 0.1 s to compose one config, nearly all of it for the groups. Runs of a sweep share few choices of
groups and differ in values, so each choice is composed once, by Hydra, and values are set on copies, by Hydra's own
function. A test holds the outcome equal to what Hydra composes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict


class Composer:
    """Composes configs below one Hydra command: its config, and the overrides of Hydra's own settings."""

    def __init__(self, loader: ConfigLoader, config_name: str | None, hydra_overrides: Sequence[str]) -> None:
        self.loader = loader
        self._config_name = config_name
        self._hydra_overrides = tuple(hydra_overrides)
        self._parser = OverridesParser.create(config_loader=loader)
        self._parse = functools.cache(self._parse_one)
        self._is_group = functools.cache(self._is_a_group)
        self._compose_groups = functools.cache(self._compose_groups_once)

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The resolved config of one run, without `hydra`, in plain containers. Raises what Hydra raises."""
        groups: list[str] = []
        values: list[Override] = []
        for text in overrides:
            override = self._parse(text)
            # As Hydra decides it: a mapping for a group's name is merged into the config, anything else chooses.
            if self._is_group(override.key_or_group) and not isinstance(override.value(), dict):
                groups.append(text)
            else:
                values.append(override)
        config = copy.deepcopy(self._compose_groups(tuple(groups)))
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))

    def _parse_one(self, text: str) -> Override:
        return self._parser.parse_overrides([text])[0]

    def _is_a_group(self, key: str) -> bool:
        return bool(self.loader.get_group_options(key, results_filter=None))

    def _compose_groups_once(self, groups: tuple[str, ...]) -> DictConfig:
        config = self.loader.load_configuration(
            config_name=self._config_name,
            overrides=[*self._hydra_overrides, *groups],
            run_mode=RunMode.RUN,
        )
        with open_dict(config):
            del config["hydra"]
        return config
