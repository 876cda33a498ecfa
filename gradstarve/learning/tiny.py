"""The tiny model: a character tokenizer, a small Llama-style decoder, and its supervised warm start."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gradstarve.learning.sums import concise_answer, generate, question_text, verbose_answer
from gradstarve.runs.config import SumsConfig, TinyModelConfig

END = "<end>"
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
    with torch.random.fork_rng(devices=[]), _threads(2):
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
            loss = _answer_loss(model, tokenizer, texts)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if (step + 1) % 200 == 0:
                say(f"warm start of the tiny model: step {step + 1} of {start.steps}, loss {loss.item():.3f}")
    model.eval()
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Every run of a sweep waits for the warm start, so it may use a second core; its result is made with this many."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(most, os.cpu_count() or 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _answer_loss(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[tuple[str, str]]
) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens, end token included; the questions are masked."""
    end = tokenizer.eos_token_id
    rows = [(tokenizer(q)["input_ids"], [*tokenizer(a)["input_ids"], end]) for q, a in texts]
    width = max(len(q) + len(a) for q, a in rows)
    ids = torch.full((len(rows), width), end)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, (q, a) in enumerate(rows):
        ids[i, : len(q) + len(a)] = torch.tensor(q + a)
        labels[i, len(q) : len(q) + len(a)] = torch.tensor(a)
        mask[i, : len(q) + len(a)] = 1
    return model(input_ids=ids, attention_mask=mask, labels=labels).loss
