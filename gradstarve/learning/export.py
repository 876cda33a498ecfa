"""`gradstarve export RUN FOLDER`: the final policy of a run as a plain model folder, its adapter merged."""

from __future__ import annotations

import argparse
import shutil
import sys
import uuid
from pathlib import Path
from typing import Any

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig, read_config
from gradstarve.runs.find import find_run
from gradstarve.runs.folder import RunFolder


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run's name, the beginning of one that no other shares, or its folder")
    parser.add_argument("folder", type=Path, help="a new folder; transformers' from_pretrained loads it")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="default: outputs")


def run(arguments: argparse.Namespace) -> int:
    folder = find_run(arguments.run, arguments.outputs)
    print(f"exporting {folder.name}", file=sys.stderr)
    export(folder, arguments.folder)
    print(arguments.folder)
    return 0


def export(folder: RunFolder, target: Path) -> None:
    """Write the run's final weights and tokenizer to `target`, whole or not at all.

    An adapter is merged in float32 and rounded once, to the model's own dtype. Raises UserError where there is nothing
    to export or `target` is there already.
    """
    from gradstarve.learning.policy import load_trained  # torch, only once it is known that there is work to do

    config = _trained(folder, target)
    building = target.with_name(f".{target.name}.{uuid.uuid4().hex[:6]}.tmp")
    try:
        building.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}") from None
    try:
        policy = load_trained(config, folder.weights, lambda text: print(text, file=sys.stderr))
        model: Any = policy.model
        if config.model.lora is not None:
            model = merged(model)
        model.save_pretrained(building)
        policy.tokenizer.save_pretrained(building)
        if target.exists():
            raise UserError(f"{target} is there already")
        building.replace(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _trained(folder: RunFolder, target: Path) -> RunConfig:
    """The run's config, where it has weights to export and `target` is free."""
    if target.exists():
        raise UserError(f"{target} is there already; name a folder that is not")
    config = read_config(folder.read_config())
    if not config.advantage.trains:
        raise UserError(f"{folder.name} trained nothing: its model is {config.model.name} as it was")
    if not folder.weights.is_dir():
        raise UserError(f"{folder.name} has no final weights: it has not been trained to its end")
    return config


def merged(model: Any) -> Any:
    """A layer at a time: the model's own dtype is half of float32, and a second copy of it may not fit."""
    from peft.tuners.lora import LoraLayer

    for layer in [module for module in model.modules() if isinstance(module, LoraLayer)]:
        base: Any = layer.get_base_layer()
        dtype = base.weight.dtype
        base.float()
        layer.merge(safe_merge=True)
        base.to(dtype)
    return model.unload()
