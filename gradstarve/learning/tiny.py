"""The tiny model: a character tokenizer, a small Llama-style decoder, and its supervised warm start."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gradstarve.learning.sums import concise_answer, generate, question_text, verbose_answer
from gradstarve.runs.dataset_config import SumsConfig
from gradstarve.runs.model_config import TinyModelConfig

END = "<end>"
# Raised whenever make_warm_start would make other weights from the same config.
WARM_START_VERSION = 1

ALPHABET = "0123456789+=,"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character. Padding is the end token: there is no pad token that a policy could sample to escape."""
    vocabulary = {END: 0, **{character: i for i, character in enumerate(ALPHABET, start=1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_model(config: TinyModelConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Fresh weights, drawn from torch's global generator."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=256,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def make_warm_start(
    config: TinyModelConfig, sums: SumsConfig, folder: Path, say: Callable[[str], None] = lambda _: None
) -> None:
    """Train the tiny model on worked sums and save it with its tokenizer into `folder`.

    For `practice_steps` a share `practice_share` of the answers is concise, so that the model learns to add with and
    without writing steps; then `concise_shares` (by number of operands, from the fewest) give it the habit that it
    starts RL with.
    """
    start = config.warm_start
    tokenizer = build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start.seed)
        model = build_model(config, tokenizer)
        rng = random.Random(start.seed)
        stream = generate(sums, rng, held_out=False)
        habits = dict(zip(sorted(sums.operand_shares), start.concise_shares, strict=True))
        optimizer = torch.optim.AdamW(model.parameters(), lr=start.learning_rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / start.steps)
        model.train()
        for step in range(start.steps):
            practising = step < start.practice_steps
            texts = []
            for operands in itertools.islice(stream, start.batch_size):
                concise = rng.random() < (start.practice_share if practising else habits[len(operands)])
                texts.append(
                    (question_text(operands), concise_answer(operands) if concise else verbose_answer(operands))
                )
            optimizer.zero_grad()
            loss = _backward(model, tokenizer, texts)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if (step + 1) % 200 == 0:
                say(f"warm start of the tiny model: step {step + 1} of {start.steps}, loss {loss:.3f}")
    model.eval()
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _backward(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[tuple[str, str]], parts: int = 4
) -> float:
    """Gradients of the mean cross-entropy of the answers' tokens, end token included; the questions are masked.

    The batch goes through the model in `parts` of like length: the same gradient with a third less padding.
    """
    end = tokenizer.eos_token_id
    rows = sorted(((tokenizer(q)["input_ids"], [*tokenizer(a)["input_ids"], end]) for q, a in texts), key=_length)
    tokens = sum(len(answer) for _, answer in rows)
    total = 0.0
    for part in (rows[i * len(rows) // parts : (i + 1) * len(rows) // parts] for i in range(parts)):
        if not part:
            continue
        width = max(map(_length, part))
        ids = torch.full((len(part), width), end)
        labels = torch.full((len(part), width), -100)
        mask = torch.zeros((len(part), width), dtype=torch.long)
        for i, (question, answer) in enumerate(part):
            ids[i, : len(question) + len(answer)] = torch.tensor(question + answer)
            labels[i, len(question) : len(question) + len(answer)] = torch.tensor(answer)
            mask[i, : len(question) + len(answer)] = 1
        loss = model(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=tokens).loss
        loss.backward()
        total += loss.item()
    return total


def _length(row: tuple[list[int], list[int]]) -> int:
    return len(row[0]) + len(row[1])
