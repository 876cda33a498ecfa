"""The trainer: TRL's GRPOTrainer with our advantages in place of its own, and our rows written as it goes."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head, pad

from gradstarve.errors import UserError
from gradstarve.estimators import Advantage, get_advantage, group_advantages
from gradstarve.grading import Grade
from gradstarve.learning.decoding import prompt_tokens
from gradstarve.learning.policy import Policy, Say, lora
from gradstarve.learning.prompt_order import PromptOrder
from gradstarve.learning.questions import GradeMany
from gradstarve.learning.recorder import Completion, Recorder
from gradstarve.learning.replay import Kept, ReplayBank, contrastive, cross_entropy, pair_weight, sample
from gradstarve.learning.rewards import training_rewards
from gradstarve.learning.tasks import Question
from gradstarve.learning.trl_arguments import trl_config
from gradstarve.learning.vllm_rollouts import MUCH_DIFFERENT, from_cache, model_length, take_over
from gradstarve.runs import checkpoints
from gradstarve.runs.config import RunConfig
from gradstarve.runs.rows import MUCH_TRUNCATED

EARLY_STEPS = 10  # after which a much truncated training is warned about

# The replay bank, inside a checkpoint.
BANK_FILE = "replay.json"


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
        say: Say = lambda _: None,
    ) -> None:
        self.run_config = config
        self.advantage: Advantage = get_advantage(config.advantage.formula, config.advantage.parameters)
        self.recorder = recorder
        self.questions = list(questions)
        self._prompts_by_id = {question.id: question.prompt for question in questions}
        self._grade = grade
        self._grades: list[Grade] = []
        self._rewards: list[float | None] = []
        self._scored: tuple[list[str], list[list[int]], torch.Tensor] | None = None
        self.replay = config.advantage.replay
        self.bank = ReplayBank(self.replay.completions_per_prompt) if self.replay is not None else None
        self._reference: Any = None
        self._replayed: dict[str, float] = {}
        self._seconds = {"rollout": 0.0, "loss": 0.0}
        self._step_started = time.perf_counter()
        self._say, self._warned = say, False
        self._cut: list[float] = []
        if len(questions) < config.prompts_per_step:
            raise UserError(f"prompts_per_step: {config.prompts_per_step} prompts of only {len(questions)} in training")
        reference: Any = None
        if self.replay is not None and self.replay.loss == "contrastive_pair" and config.model.lora is None:
            # No adapter can be switched off: the untrained policy is kept, before TRL changes the model's forward.
            reference = copy.deepcopy(policy.model).requires_grad_(False).eval()
        room: int | None = None
        if config.rollout.vllm is not None:
            room = model_length(config, max(len(prompt_tokens(policy.tokenizer, q, config.dataset)) for q in questions))
        with from_cache(config, policy.model):
            super().__init__(
                model=policy.model,
                reward_funcs=self._reward,
                args=trl_config(config, output_dir, processes, room),
                train_dataset=Dataset.from_dict(
                    {"prompt": [q.prompt for q in questions], "index": list(range(len(questions)))}
                ),
                processing_class=policy.tokenizer,
                peft_config=lora(config.model.lora),
                callbacks=[*callbacks],
            )
        self.remove_callback(PrinterCallback)  # the same numbers are in `steps`
        if reference is not None:
            add_fused_lm_head(reference, temperature=self.temperature)
            self._reference = self.accelerator.prepare_model(reference, evaluation_mode=True)
        if config.rollout.vllm is not None:
            take_over(
                self.vllm_generation,
                config,
                self.accelerator.unwrap_model(self.model),
                self.eos_token_ids,
                lambda: self.state.global_step,
                self.accelerator.process_index,
            )

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
        """The reward function TRL calls: 1, 0, or None. Whatever the reward is, every completion is graded."""
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        cut = [self._is_truncated(ids) for ids in completion_ids]
        self._grades = self._grade(texts, [self.questions[i].gold for i in index], cut)
        self._rewards = training_rewards(
            self.run_config.loss,
            self._grades,
            [len(ids) for ids in completion_ids],
            cut,
            self.run_config.seed,
            self.state.global_step + 1,
            first=self.accelerator.process_index * len(texts),
        )
        return self._rewards

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
        vllm = self.run_config.rollout.vllm
        if vllm is not None and vllm.correction == "none":
            self._measure_sampling(output)
        return output

    def _measure_sampling(self, output: dict[str, Any]) -> None:
        """What TRL measures where it corrects: the engine's log-probabilities against the trainer's."""
        mask_BT = output["completion_mask"].bool()
        with torch.no_grad():
            trained_BT, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
                torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
                mask_BT.shape[1],
                batch_size=self.args.per_device_train_batch_size,
            )
        different = (trained_BT - output["sampling_per_token_logps"]).abs()[mask_BT]
        name = "sampling/sampling_logp_difference"
        self._metrics["train"][f"{name}/mean"].append(self.accelerator.gather(different.nanmean()).nanmean().item())
        self._metrics["train"][f"{name}/max"].append(
            self.accelerator.gather(different.nan_to_num(0.0).max()).max().item()
        )

    def _record(
        self, inputs: list[dict[str, Any]], texts: list[str], ids: list[list[int]], advantages_PG: np.ndarray
    ) -> None:
        """Groups are recorded here, since TRL shuffles the rows afterwards."""
        mine = [
            Completion(
                question=self.questions[row["index"]],
                text=text,
                grade=grade,
                rewarded=reward,
                token_ids=tuple(token_ids),
                truncated=self._is_truncated(token_ids),
            )
            for row, text, token_ids, grade, reward in zip(inputs, texts, ids, self._grades, self._rewards, strict=True)
        ]
        completions = gather_object(mine)
        if self.bank is not None:
            for c in completions:
                right = None if c.rewarded is None else c.rewarded == 1
                self.bank.add(c.question.id, c.token_ids, right, c.truncated, self.state.global_step + 1)
        if self.recorder is not None and self.accelerator.is_main_process:
            self.recorder.record_groups(self.state.global_step + 1, completions, advantages_PG)

    def resume(self, checkpoint: Path) -> None:
        """Train on from a whole checkpoint."""
        self.add_callback(_RandomState(self, checkpoint))
        if self.bank is not None:
            self.bank.load(json.loads((checkpoint / BANK_FILE).read_text(encoding="utf-8")))
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
            if self.bank is not None:
                (path / BANK_FILE).write_text(json.dumps(self.bank.state()), encoding="utf-8")
            self.recorder.folder.flush_tables()
            checkpoints.seal(path, step, self.recorder.folder.offsets())
            checkpoints.keep_only(path.parent, path)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The policy loss, and in a step's first pass the replay loss times its weight."""
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        first_pass = self._step % self.args.gradient_accumulation_steps == 0
        if self.replay is None or not first_pass or self.state.global_step < self.replay.warm_up_steps:
            return loss
        replayed = self._replay_loss(self.accelerator.unwrap_model(model))
        return loss if replayed is None else loss + self.replay.weight * replayed

    def _replay_loss(self, model: Any) -> torch.Tensor | None:
        """The loss on this step's sample of the bank, the same in every process; None while the bank has nothing."""
        assert self.replay is not None and self.bank is not None
        seed, step = self.run_config.seed, self.state.global_step + 1
        if self.replay.loss == "cross_entropy":
            rows = sample(self.bank.right_completions(), self.replay.rows_per_step, seed, step)
            if not rows:
                return None
            loss = cross_entropy(*self._log_probs(model, rows))
        else:
            pairs = sample(self.bank.pairs(), self.replay.rows_per_step, seed, step)
            if not pairs:
                return None
            rows = [(prompt_id, kept) for prompt_id, right, wrong in pairs for kept in (right, wrong)]
            policy_B = self._sequence_log_probs(model, rows)
            with torch.no_grad():
                if self._reference is not None:
                    reference_B = self._sequence_log_probs(self._reference, rows)
                else:
                    with model.disable_adapter():
                        reference_B = self._sequence_log_probs(model, rows)
            weights = [
                pair_weight(self.bank.prompts[prompt_id], right, wrong, step, self.run_config.steps, self.replay)
                for prompt_id, right, wrong in pairs
            ]
            loss = contrastive(
                policy_B[0::2],
                policy_B[1::2],
                reference_B[0::2],
                reference_B[1::2],
                torch.tensor(weights, device=policy_B.device),
            )
        self._replayed = {"replay_loss": loss.item(), "replay_rows": len(rows)}
        return loss

    def _sequence_log_probs(self, model: Any, rows: list[tuple[str, Kept]]) -> torch.Tensor:
        log_probs_BT, mask_BT = self._log_probs(model, rows)
        return (log_probs_BT * mask_BT).sum(-1)

    def _log_probs(self, model: Any, rows: list[tuple[str, Kept]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of kept completions' tokens under `model`, and the mask of real tokens."""
        prompts = [self._prompts_by_id[prompt_id] for prompt_id, _ in rows]
        prompt_ids, _, _ = self._tokenize_prompts(prompts)
        prompt_BP = pad([torch.tensor(ids) for ids in prompt_ids], self._tokenizer.pad_token_id, "left")
        prompt_mask_BP = pad([torch.ones(len(ids), dtype=torch.long) for ids in prompt_ids], 0, "left")
        tokens_BT = pad([torch.tensor(kept.tokens) for _, kept in rows], self._tokenizer.pad_token_id, "right")
        mask_BT = pad([torch.ones(len(kept.tokens), dtype=torch.long) for _, kept in rows], 0, "right")
        device = self.accelerator.device
        ids = torch.cat([prompt_BP, tokens_BT], dim=1).to(device)
        mask = torch.cat([prompt_mask_BP, mask_BT], dim=1).to(device)
        log_probs_BT, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, tokens_BT.shape[1])
        return log_probs_BT, mask_BT.to(device)

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
        replayed, self._replayed = self._replayed, {}
        row = self.recorder.record_step(self.state.global_step, {**logs, **replayed}, {**spent, "rest": rest})
        self._warn_of_truncation(row["truncated"])
        apart = logs.get("sampling/sampling_logp_difference/mean") or 0.0
        if apart > MUCH_DIFFERENT and not self._warned:
            self._warned = True
            self._say(
                f"warning: in step {self.state.global_step} the engine's log-probabilities are {apart:.2f} nats from "
                "the trainer's in the mean: completions come from a noticeably different policy"
            )

    def _warn_of_truncation(self, share: float) -> None:
        """Once, while it can still be stopped: a limit that cuts answers off looks like starvation."""
        self._cut.append(share)
        looked_at = min(EARLY_STEPS, self.run_config.steps)
        if len(self._cut) == looked_at and fmean(self._cut) > MUCH_TRUNCATED:
            self._say(
                f"warning: {fmean(self._cut):.0%} of the completions of the first {looked_at} steps were cut off at "
                f"completion_limit={self.run_config.completion_limit}: the limit may decide what is learned"
            )


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
