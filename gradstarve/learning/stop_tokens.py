"""Tokens that end a completion beside the model's own end tokens, where the data set names a character that does."""

from __future__ import annotations

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from gradstarve.runs.dataset_config import DatasetConfig, WordProblemsConfig


def end_at_stop(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, dataset: DatasetConfig) -> None:
    """Add the data set's stop tokens to the model's end tokens: TRL's rollouts and evaluation both read them there.

    So a completion that ends with one is complete, and one with none within the limit is truncated.
    """
    stop = dataset.stop if isinstance(dataset, WordProblemsConfig) else None
    if stop is None:
        return
    declared = model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or [])
    model.generation_config.eos_token_id = sorted({*ends, tokenizer.eos_token_id, *stop_tokens(tokenizer, stop)})


def stop_tokens(tokenizer: PreTrainedTokenizerBase, stop: str) -> list[int]:
    """Every token of the vocabulary whose text has the character `stop` in it: "\\n" is in "\\n\\n" too."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
    return [token for token, text in enumerate(texts) if stop in text]
