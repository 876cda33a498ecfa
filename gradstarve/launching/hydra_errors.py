"""What Hydra and OmegaConf say about a user's mistake, in one line that names the nearest right thing."""

from __future__ import annotations

import re
from dataclasses import fields

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from gradstarve.errors import UserError, nearest
from gradstarve.runs.config import RunConfig
from gradstarve.runs.config_keys import nearest_key

# What Hydra raises as a ValueError although the user can put it right.
_MISTAKES_AS_VALUE_ERRORS = ("Config group override",)


def one_line(error: Exception) -> str | None:
    """The line for an error that a user can put right; None for any other, which is a bug and keeps its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error.__cause__, UserError):
        return str(error.__cause__)
    if isinstance(error, MissingConfigException):
        return _missing(error)
    if isinstance(error, HydraException):
        return _composition(error)
    if isinstance(error, OmegaConfBaseException):
        first, where = str(error).splitlines()[0], error.full_key
        return f"{where}: {first}" if where else first
    if isinstance(error, ValueError) and str(error).startswith(_MISTAKES_AS_VALUE_ERRORS):
        return _flat(str(error))
    return None


def _missing(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if error.options is not None and group:
        return f"{group}={name}: no such option. {nearest(name, error.options)}"
    return _flat(str(error).split("\n")[0])


def _composition(error: HydraException) -> str:
    cause = error.__cause__
    text = str(error)
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and text.startswith("Could not override"):
        return f"{cause.full_key}: unknown key. {_nearest_to(cause)}"
    there = re.search(r"An item is already at '(.*?)'", text)
    if there is not None:
        return f"{there[1]}: is a key of the config already: write {there[1]}=VALUE without the +"
    unknown_group = re.match(r"Could not override '(.*?)'\. No match in the defaults list", text)
    if unknown_group is not None:
        return f"{unknown_group[1]}: unknown key. {nearest_key(unknown_group[1], RunConfig)}"
    twice = re.match(r"Multiple values for (.*?)\.", text)
    if twice is not None:
        return f"{twice[1]}: two values for one group: write {twice[1]}=NAME once, without a +"
    if isinstance(cause, OmegaConfBaseException):
        text = f"{text} {str(cause).splitlines()[0]}"
    return _flat(text)


def _nearest_to(cause: ConfigAttributeError | ConfigKeyError) -> str:
    full_key = str(cause.full_key)
    parent, _, name = full_key.rpartition(".")
    if parent and isinstance(cause.parent_node, DictConfig):
        siblings = [str(key) for key in cause.parent_node if not str(key).startswith("_")]
        if not siblings:
            choose = "; choose one by dataset@evaluation=NAME" if parent == "evaluation.dataset" else ""
            return f"{parent} is null in this run{choose}"
        return nearest(name, siblings)
    suggestion = nearest(name, [field.name for field in fields(RunConfig)])
    return suggestion if suggestion.startswith("Did you mean") else nearest_key(full_key, RunConfig)


def _flat(text: str) -> str:
    return " ".join(text.split())
