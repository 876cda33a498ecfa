"""Whether a model can be asked as the config says: by chat, with or without thinking."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig
from gradstarve.runs.dataset_config import DatasetConfig, QuestionsConfig


def check_chat_template(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> None:
    """Raises UserError where the tokenizer's template cannot do what the `prompt` of a data set asks for, be it trained
    on or only evaluated.

    Templates ignore a switch that they do not know: a model that thinks after all would be cut off at the completion
    limit and look starved.
    """
    _check(tokenizer, config.model.name, config.dataset, "dataset")
    if config.evaluation.dataset is not None:
        _check(tokenizer, config.model.name, config.evaluation.dataset, "evaluation.dataset")


def _check(tokenizer: PreTrainedTokenizerBase, model: str, dataset: DatasetConfig, key: str) -> None:
    if not isinstance(dataset, QuestionsConfig) or not dataset.prompt.chat:
        return
    if tokenizer.chat_template is None:
        raise UserError(
            f"model {model}: its tokenizer has no chat template; set {key}.prompt.chat=false, or take a "
            "model that was trained to chat"
        )
    asked = {thinking: _asked(tokenizer, thinking) for thinking in (False, True)}
    opened = asked[False].rfind("<think>") > asked[False].rfind("</think>")
    if not dataset.prompt.thinking and opened:
        raise UserError(
            f"model {model}: its chat template opens <think> although {key}.prompt.thinking is false; it "
            f"can only be asked with {key}.prompt.thinking=true"
        )
    if dataset.prompt.thinking and not opened and asked[False] == asked[True]:
        raise UserError(f"{key}.prompt.thinking: the chat template of model {model} has no thinking; set it to false")


def _asked(tokenizer: PreTrainedTokenizerBase, thinking: bool) -> str:
    messages = [{"role": "user", "content": "1+1?"}]
    return str(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, enable_thinking=thinking)
    )
