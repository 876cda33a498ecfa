"""A model and its tokenizer from the hub or a local folder, and one line about why they cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import huggingface_hub
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gradstarve.errors import UserError
from gradstarve.runs.model_config import HubModelConfig

# What a model folder needs to be loaded by transformers or vLLM. Weights are safetensors alone: other formats run code
# when they are read. Subfolders and consolidated* hold the same weights once more, for other programs.
WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
UNWANTED = ["*/*", "consolidated*"]


def load_from_hub(model: HubModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Raises UserError, one line, where the model is gated, unknown, out of reach or not whole.

    Of a vision-language checkpoint `AutoModelForCausalLM` takes the text model alone.
    """
    folder = fetch_model(model)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, model.dtype),
            local_files_only=True,
            use_safetensors=True,
            **({"attn_implementation": model.attention} if model.attention else {}),
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", local_files_only=True)
    except (OSError, httpx.HTTPError, HFValidationError) as error:
        raise hub_error(model, error) from None
    except (ImportError, ValueError) as error:
        if model.attention is None or "attention" not in str(error).lower():
            raise
        raise UserError(
            f"model.attention: {model.attention} cannot be used here ({_first_line(error)}); sdpa needs nothing"
        ) from None
    return loaded, tokenizer


def fetch_model(model: HubModelConfig) -> str:
    """The folder of the model, which is in the local cache from then on. Raises UserError as `load_from_hub` does."""
    try:
        return model.id if Path(model.id).is_dir() else _downloaded(model)
    except (OSError, httpx.HTTPError, HFValidationError) as error:
        raise hub_error(model, error) from None


def _downloaded(model: HubModelConfig) -> str:
    """The folder of the pinned commit in the local cache. The hub is not asked for what is there already.

    Everything is read from this folder: given an id, transformers looks for an adapter on main, whatever is pinned.
    """

    def kept(local_files_only: bool) -> str:
        return huggingface_hub.snapshot_download(
            model.id,
            revision=model.revision,
            allow_patterns=WANTED,
            ignore_patterns=UNWANTED,
            local_files_only=local_files_only,
        )

    try:
        return kept(local_files_only=False)
    except (OSError, httpx.TransportError) as error:
        # A cache that another program filled has no list of what belongs to it, for which the hub was asked. It may be
        # whole all the same.
        try:
            return kept(local_files_only=True)
        except LocalEntryNotFoundError:
            raise error from None


def hub_error(model: HubModelConfig, error: BaseException) -> UserError:
    """What went wrong, by the exceptions that lie under transformers' own."""
    met = list(_causes(error))

    def is_any(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in met)

    named = f"model {model.name}: {model.id}"
    if Path(model.id).is_dir():
        return UserError(f"{named} is a folder that cannot be loaded ({_first_line(error)})")
    if is_any(GatedRepoError):
        if huggingface_hub.get_token() is None:
            return UserError(
                f"{named} is gated: ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"
            )
        return UserError(
            f"{named} is gated, and the account of your token has no access: ask for it on the model's page"
        )
    if is_any(RevisionNotFoundError):
        return UserError(f"{named} has no revision {model.revision}; check model.revision")
    if is_any(RepositoryNotFoundError, HFValidationError):
        return UserError(
            f"{named} is neither a folder nor a model of the hub that you may read; check model.id (a private one "
            "needs `hf auth login`)"
        )
    fetch = f"`hf download {model.id} --revision {model.revision}` with a network, or name a folder in model.id"
    if is_any(OfflineModeIsEnabled) or huggingface_hub.constants.HF_HUB_OFFLINE:
        return UserError(f"{named} is not in the local cache, and HF_HUB_OFFLINE is set; {fetch}")
    answered = next((cause.response.status_code for cause in met if isinstance(cause, HfHubHTTPError)), None)
    if answered == 401:
        return UserError(f"{named} could not be loaded: the hub refuses your token; `hf auth login` again")
    if answered is not None:
        return UserError(f"{named} could not be loaded: the hub answered {answered}; try again, or {fetch}")
    if is_any(LocalEntryNotFoundError, httpx.TransportError):
        return UserError(f"{named} is not in the local cache, and the hub cannot be reached; {fetch}")
    return UserError(f"{named} could not be loaded ({_first_line(error)}); check model.id and model.revision")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
