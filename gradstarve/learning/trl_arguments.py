"""A run's config as TRL's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from gradstarve.errors import UserError
from gradstarve.runs.config import RunConfig


def trl_config(config: RunConfig, output_dir: Path, processes: int = 1, model_length: int | None = None) -> GRPOConfig:
    """TRL's arguments. Every knob that moves the result is set here, none is left to TRL's defaults.

    `model_length` is how many tokens a vLLM engine must have room for. Raises UserError where a step's completions, or
    the processes, cannot be split as asked.
    """
    per_pass = config.completions_per_pass or config.completions_per_step
    if per_pass % processes:
        raise UserError(f"completions_per_pass: {per_pass} completions cannot be shared by {processes} processes")
    passes = config.completions_per_step // per_pass
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
        **_engine(config, processes, model_length),
        chat_template_kwargs={"enable_thinking": config.dataset.prompt.thinking}
        if config.dataset.source == "questions" and config.dataset.prompt.chat
        else None,
    )


def _engine(config: RunConfig, processes: int, model_length: int | None) -> dict[str, Any]:
    vllm = config.rollout.vllm
    if vllm is None:
        return {"use_vllm": False}
    if vllm.server is None and processes % vllm.tensor_parallel:
        raise UserError(
            f"rollout.vllm.tensor_parallel: {vllm.tensor_parallel} GPUs an engine do not divide the run's {processes} "
            f"process{'es' if processes > 1 else ''}"
        )
    corrects = vllm.correction != "none"
    arguments: dict[str, Any] = {
        "use_vllm": True,
        "vllm_mode": "colocate" if vllm.server is None else "server",
        "vllm_model_impl": "vllm",
        "vllm_gpu_memory_utilization": vllm.memory_share,
        "vllm_enable_sleep_mode": vllm.sleep,
        "vllm_tensor_parallel_size": vllm.tensor_parallel,
        "vllm_max_model_length": model_length,
        "vllm_structured_outputs_regex": None,
        "vllm_importance_sampling_correction": corrects,
        "vllm_importance_sampling_mode": vllm.correction if corrects else "token_truncate",
        "vllm_importance_sampling_clip_max": vllm.correction_cap if corrects else 1.0,
        "vllm_importance_sampling_clip_min": None,
    }
    if vllm.server is not None:
        arguments |= {
            "vllm_server_base_url": None,
            "vllm_server_host": vllm.server.host,
            "vllm_server_port": vllm.server.port,
            "vllm_server_timeout": vllm.server.timeout,
            "vllm_group_port": vllm.server.group_port,
        }
    return arguments
