"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with GSM8K, MATH-500, graded outputs and rollouts; GRADSTARVE_TEST_DATA names another place."""
    folder = Path(os.environ.get("GRADSTARVE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"test data not found at {folder}; set GRADSTARVE_TEST_DATA to its folder")
    return folder
