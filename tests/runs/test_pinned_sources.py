"""What a run's name stands for does not move: data from the hub are pinned to a commit, as models are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gradstarve.errors import UserError

REAL_MODEL = "model=smollm2_135m"


@pytest.mark.parametrize("moving", ["main", "null", "740312add8"])
def test_a_data_set_at_a_branch_is_refused(compose_config: Any, moving: str) -> None:
    with pytest.raises(UserError, match=rf"^dataset\.revision: {moving} may move; .*dataset_info\('openai/gsm8k'\)"):
        compose_config(REAL_MODEL, "dataset=gsm8k", f"dataset.revision={moving}")


@pytest.mark.parametrize("moving", ["main", "null"])
def test_training_questions_from_another_data_set_are_pinned_too(compose_config: Any, moving: str) -> None:
    with pytest.raises(UserError, match=rf"^dataset\.train_revision: {moving} may move; .*MATH-lighteval"):
        compose_config(REAL_MODEL, "dataset=math500", f"dataset.train_revision={moving}")


def test_local_files_need_no_commit(compose_config: Any) -> None:
    both = ("dataset.train_path=a.jsonl", "dataset.eval_path=b.jsonl")
    compose_config(REAL_MODEL, "dataset=gsm8k", "dataset.revision=main", *both)
    with pytest.raises(UserError, match=re.escape("dataset.revision: main may move")):
        compose_config(REAL_MODEL, "dataset=gsm8k", "dataset.revision=main", both[0])
    with pytest.raises(UserError, match=r"^dataset\.eval_path: name a local file, or set dataset\.hub_id"):
        compose_config(REAL_MODEL, "dataset=gsm8k", "dataset.hub_id=null", both[0])
