"""Two processes (gloo) do the work of one: same rows, and each gets its own slice of the advantages."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from gradstarve.runs.config import plain_config
from gradstarve.runs.folder import RunFolder

WORKER = """
import json, sys, yaml
from pathlib import Path
import torch
from gradstarve.learning.policy import load_policy
from gradstarve.learning.recorder import Recorder
from gradstarve.learning.seeding import seed_everything
from gradstarve.learning.tasks import load_task
from gradstarve.learning.trainer import BinaryRewardTrainer
from gradstarve.runs.config import read_config
from gradstarve.runs.folder import RunFolder

config = read_config(yaml.safe_load(Path(sys.argv[1]).read_text()))
seed_everything(config.seed)
task, folder = load_task(config.dataset), RunFolder.of(config)

class Watched(BinaryRewardTrainer):
    seen = []
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        texts = self.processing_class.batch_decode(output["completion_ids"], skip_special_tokens=True)
        self.seen += [
            [self.questions[row["index"]].id, text, a]
            for row, text, a in zip(inputs, texts, output["advantages"].tolist(), strict=True)
        ]
        return output

trainer = Watched(config, load_policy(config), task.train, task.grade, Recorder(folder, config), folder.checkpoints, 2)
trainer.train()
out = Path(sys.argv[2]) / f"{trainer.accelerator.process_index}.json"
weight = next(trainer.accelerator.unwrap_model(trainer.model).parameters()).sum().item()
out.write_text(json.dumps({"seen": trainer.seen, "bank": trainer.bank.state(), "weight": weight}))
"""


def test_two_processes_slice_right_and_their_banks_agree(
    quick: tuple[str, ...], compose_config: Any, tmp_path: Path
) -> None:
    import json

    config = compose_config(
        *quick, "advantage=sign_ce", "advantage.replay.warm_up_steps=1", "steps=3", "checkpoint_every=0",
        "prompts_per_step=3", "group_size=2",
    )  # fmt: skip
    script, given = tmp_path / "worker.py", tmp_path / "config.yaml"
    script.write_text(WORKER)
    given.write_text(yaml.safe_dump(plain_config(config)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1",
            f"--master_port={port}", str(script), str(given), str(tmp_path),
        ],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]

    first, second = (json.loads((tmp_path / f"{i}.json").read_text()) for i in (0, 1))
    rows = RunFolder.of(config).read("completions")
    assert len(rows) == 3 * 3 * 2
    # Process 0 holds the first three completions of each step, process 1 the others; a group of two spans both.
    for step in (1, 2, 3):
        wanted = rows[rows["step"] == step]
        held = [*first["seen"][(step - 1) * 3 : step * 3], *second["seen"][(step - 1) * 3 : step * 3]]
        assert [h[0] for h in held] == wanted["prompt_id"].tolist()
        assert [h[1] for h in held] == wanted["completion"].tolist()
        assert [h[2] for h in held] == wanted["advantage"].tolist()
    assert first["bank"] == second["bank"]
    assert any(history["right"] for history in first["bank"].values())
    assert first["weight"] == second["weight"]
