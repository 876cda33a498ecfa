"""The trainer: TRL's GRPOTrainer with our advantages in place of its own, and our rows written as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from gradstarve.errors import UserError
from gradstarve.estimators import Advantage, get_advantage, group_advantages
from gradstarve.grading import Grade
from gradstarve.learning.policy import Policy, lora
from gradstarve.learning.recorder import Completion, Recorder
from gradstarve.learning.tasks import GradeMany, Question
from gradstarve.runs import checkpoints
from gradstarve.runs.config import RunConfig


class PromptOrder(Sampler[int]):
    """Which prompts each step trains on, as a function of seed and step alone.

    Epoch e is the (e+1)-th permutation drawn from a generator seeded by the run, which is also what TRL's own sampler
    gives in an uninterrupted run; starting at `first_step()`, asked when iteration starts, continues it. Each step's
    prompts come `group_size` times in a row, and the whole step `passes` times, as TRL expects (it generates on the
    first and reuses on the others).
    """

    def __init__(
        self,
        prompts: int,
        prompts_per_step: int,
        group_size: int,
        passes: int,
        steps: int,
        seed: int,
        first_step: Callable[[], int] = lambda: 0,
    ) -> None:
        self.prompts, self.prompts_per_step, self.group_size = prompts, prompts_per_step, group_size
        self.passes, self.steps, self.seed, self.first_step = passes, steps, seed, first_step
        # TRL drops the last, incomplete step of an epoch.
        self.steps_per_epoch = prompts // prompts_per_step

    def step_prompts(self) -> Iterator[list[int]]:
        """The prompts of the first step, and so on to the last."""
        first_step = self.first_step()
        generator = torch.Generator().manual_seed(self.seed)
        order: list[int] = []
        for step in range(self.steps):
            place = step % self.steps_per_epoch
            if place == 0:
                order = torch.randperm(self.prompts, generator=generator).tolist()
            if step >= first_step:
                yield order[place * self.prompts_per_step : (place + 1) * self.prompts_per_step]

    def __iter__(self) -> Iterator[int]:
        for prompts in self.step_prompts():
            for _ in range(self.passes):
                for prompt in prompts:
                    yield from [prompt] * self.group_size

    def __len__(self) -> int:
        return self.steps * self.passes * self.prompts_per_step * self.group_size


class BinaryRewardTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages come from `estimators`, for rewards 1, 0 and None (unverifiable)."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        questions: Sequence[Question],
        grade: GradeMany,
        recorder: Recorder | None,
        output_dir: Path,
        processes: int = 1,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        self.run_config = config
        self.advantage: Advantage = get_advantage(config.advantage.formula, config.advantage.parameters)
        self.recorder = recorder
        self.questions = list(questions)
        self._grade = grade
        self._grades: list[Grade] = []
        self._scored: tuple[list[str], list[list[int]], torch.Tensor] | None = None
        self._seconds = {"rollout": 0.0, "loss": 0.0}
        self._step_started = time.perf_counter()
        if len(questions) < config.prompts_per_step:
            raise UserError(f"prompts_per_step: {config.prompts_per_step} prompts of only {len(questions)} in training")
        super().__init__(
            model=policy.model,
            reward_funcs=self._reward,
            args=trl_config(config, output_dir, processes),
            train_dataset=Dataset.from_dict(
                {"prompt": [q.prompt for q in questions], "index": list(range(len(questions)))}
            ),
            processing_class=policy.tokenizer,
            peft_config=lora(config.model.lora),
            callbacks=[*callbacks],
        )
        self.remove_callback(PrinterCallback)  # the same numbers are in `steps`

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Sampler[int]:
        config = self.run_config
        return PromptOrder(
            prompts=len(self.questions),
            prompts_per_step=config.prompts_per_step,
            group_size=config.group_size,
            passes=self.args.gradient_accumulation_steps,
            steps=config.steps,
            seed=config.seed,
            first_step=lambda: self.state.global_step,
        )

    def _reward(self, prompts: Any, completions: Any, completion_ids: Any, index: Any, **_: Any) -> list[float | None]:
        """The reward function TRL calls: 1, 0, or None where the grader could not decide."""
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        cut = [self._is_truncated(ids) for ids in completion_ids]
        self._grades = self._grade(texts, [self.questions[i].gold for i in index], cut)
        if self.run_config.loss.truncated == "penalise":
            return [0.0 if c else g.reward for c, g in zip(cut, self._grades, strict=True)]
        return [grade.reward for grade in self._grades]

    def _is_truncated(self, ids: Sequence[int]) -> bool:
        """No end token within the limit; the pad token, which may be the end token, decides nothing."""
        return not ids or ids[-1] not in self.eos_token_ids

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        self._scored = (texts, completion_ids_list, rewards)
        return rewards

    def _generate(self, prompts: list[Any]) -> Any:
        started = time.perf_counter()
        result = super()._generate(prompts)
        self._seconds["rollout"] += time.perf_counter() - started
        return result

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self._scored is None:
            raise RuntimeError("TRL generated completions without scoring them; is it still version 1.16?")
        texts, ids, rewards = self._scored
        rewards_PG = rewards[:, 0].double().cpu().numpy().reshape(-1, self.run_config.group_size)
        advantages_PG = group_advantages(rewards_PG, self.advantage)
        here = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        output["advantages"] = torch.tensor(
            advantages_PG.reshape(-1)[here], dtype=output["advantages"].dtype, device=output["advantages"].device
        )
        self._record(inputs, texts, ids, advantages_PG)
        return output

    def _record(
        self, inputs: list[dict[str, Any]], texts: list[str], ids: list[list[int]], advantages_PG: np.ndarray
    ) -> None:
        """Groups are recorded here, since TRL shuffles the rows afterwards."""
        mine = [
            Completion(
                question=self.questions[row["index"]],
                text=text,
                grade=grade,
                rewarded=0.0
                if self._is_truncated(token_ids) and self.run_config.loss.truncated == "penalise"
                else grade.reward,
                tokens=len(token_ids),
                truncated=self._is_truncated(token_ids),
            )
            for row, text, token_ids, grade in zip(inputs, texts, ids, self._grades, strict=True)
        ]
        completions = gather_object(mine)
        if self.recorder is not None and self.accelerator.is_main_process:
            self.recorder.record_groups(self.state.global_step + 1, completions, advantages_PG)

    def resume(self, checkpoint: Path) -> None:
        """Train on from a whole checkpoint."""
        self.add_callback(_RandomState(self, checkpoint))
        self.train(resume_from_checkpoint=str(checkpoint))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Called by the Trainer every `checkpoint_every` steps, after the step's row is written.

        None is taken after the last step: the final weights follow at once. TRL's own method would write a model card.
        """
        step = self.state.global_step
        if step >= self.run_config.steps:
            return
        Trainer._save_checkpoint(self, model, trial)
        self.accelerator.wait_for_everyone()
        if self.recorder is not None and self.accelerator.is_main_process:
            path = self.recorder.folder.checkpoints / f"checkpoint-{step}"
            checkpoints.seal(path, step, self.recorder.folder.offsets())
            checkpoints.keep_only(path.parent, path)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        started, rollout_before = time.perf_counter(), self._seconds["rollout"]
        result = super().training_step(model, inputs, num_items_in_batch)
        rollout = self._seconds["rollout"] - rollout_before
        self._seconds["loss"] += time.perf_counter() - started - rollout
        return result

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if self.recorder is None or not self.accelerator.is_main_process or "grad_norm" not in logs:
            return
        now = time.perf_counter()
        spent, self._seconds = self._seconds, {"rollout": 0.0, "loss": 0.0}
        rest = max(0.0, now - self._step_started - spent["rollout"] - spent["loss"])
        self._step_started = now
        self.recorder.record_step(self.state.global_step, logs, {**spent, "rest": rest})


class _RandomState(TrainerCallback):
    """Restores the random state right before the first resumed step.

    The Trainer restores it too, but then starts the data loader, which draws from it; an uninterrupted run did not.
    """

    def __init__(self, trainer: BinaryRewardTrainer, checkpoint: Path) -> None:
        self.trainer, self.checkpoint, self.restored = trainer, checkpoint, False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self.restored:
            self.trainer._load_rng_state(str(self.checkpoint))
            self.restored = True


def trl_config(config: RunConfig, output_dir: Path, processes: int = 1) -> GRPOConfig:
    """TRL's arguments. Every knob that moves the result is set here, none is left to TRL's defaults.

    Raises UserError where a step's completions cannot be split as asked.
    """
    per_pass = config.completions_per_pass or config.completions_per_step
    if per_pass % processes:
        raise UserError(f"completions_per_pass: {per_pass} completions cannot be shared by {processes} processes")
    passes = config.completions_per_step // per_pass
    vllm = config.rollout.engine != "hf"
    return GRPOConfig(
        output_dir=str(output_dir),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=config.steps,
        num_generations=config.group_size,
        num_iterations=1,
        per_device_train_batch_size=per_pass // processes,
        gradient_accumulation_steps=passes,
        steps_per_generation=passes,
        max_completion_length=config.completion_limit,
        temperature=config.rollout.temperature,
        top_p=config.rollout.top_p,
        top_k=0,
        min_p=None,
        repetition_penalty=1.0,
        loss_type=config.loss.aggregation,
        scale_rewards="group",
        epsilon=config.loss.clip_low,
        epsilon_high=config.loss.clip_high,
        beta=config.loss.kl,
        importance_sampling_level="token",
        mask_truncated_completions=config.loss.truncated == "mask",
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.optimizer.schedule,
        warmup_steps=config.optimizer.warmup_steps,
        weight_decay=config.optimizer.weight_decay,
        max_grad_norm=config.optimizer.max_grad_norm,
        adam_beta1=config.optimizer.beta1,
        adam_beta2=config.optimizer.beta2,
        adam_epsilon=config.optimizer.epsilon,
        optim="adamw_torch",
        bf16=config.model.dtype == "bfloat16",
        fp16=False,
        gradient_checkpointing=config.model.gradient_checkpointing,
        disable_dropout=False,
        shuffle_dataset=True,
        remove_unused_columns=False,
        dataloader_num_workers=0,
        dataloader_pin_memory=torch.cuda.is_available(),
        ignore_data_skip=True,
        logging_strategy="steps",
        logging_steps=1,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps" if config.checkpoint_every else "no",
        save_steps=config.checkpoint_every or 500,
        save_total_limit=None,
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        use_vllm=vllm,
        chat_template_kwargs={"enable_thinking": config.dataset.prompt.thinking}
        if config.dataset.source == "questions" and config.dataset.prompt.chat
        else None,
        **({"vllm_mode": config.rollout.engine.removeprefix("vllm_"), **config.rollout.vllm} if vllm else {}),
    )
