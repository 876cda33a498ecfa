from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradstarve.errors import UserError
from gradstarve.launching.combinations import combinations, parse_overrides
from gradstarve.launching.ranges import parse_range, takes_integers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("42..48", [42, 43, 44, 45, 46, 47, 48]),
        ("3..3", [3]),
        ("3..1", [3, 2, 1]),
        ("-2..1", [-2, -1, 0, 1]),
        ("1..-2", [1, 0, -1, -2]),
        ("-3..-1", [-3, -2, -1]),
        ("1..9..4", [1, 5, 9]),
        ("1..8..4", [1, 5]),
        ("10..1..3", [10, 7, 4, 1]),
        ("10..1..-3", [10, 7, 4, 1]),
        ("5..6..10", [5]),
    ],
)
def test_both_ends_belong_to_a_range(text: str, values: list[int]) -> None:
    assert list(parse_range(text) or []) == values


@pytest.mark.parametrize(
    "text", ["../data", "a..b", "1...3", "1.5..3", "..", "1..", "..3", "+1..3", "1_0..3", "1..2..3..4", " 1..3", "٣..٥"]
)
def test_what_only_looks_like_a_range_is_left_alone(text: str) -> None:
    assert parse_range(text) is None


@pytest.mark.parametrize("text", ["1..5..0", "1..5..-1", "0..1000000"])
def test_a_range_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=text.replace(".", r"\.")):
        parse_range(text)


@given(st.integers(-500, 500), st.integers(-500, 500), st.integers(1, 50))
def test_a_range_starts_at_its_start_stays_inside_and_reaches_within_a_step_of_its_end(
    a: int, b: int, step: int
) -> None:
    values = list(parse_range(f"{a}..{b}..{step}") or [])
    assert values[0] == a
    assert all(min(a, b) <= value <= max(a, b) for value in values)
    assert abs(values[-1] - b) < step
    assert {abs(y - x) for x, y in itertools.pairwise(values)} <= {step}


@pytest.mark.parametrize(
    "key",
    [
        "seed", "group_size", "steps", "prompts_per_step", "completion_limit", "eval_every", "checkpoint_every",
        "completions_per_pass", "optimizer.warmup_steps", "evaluation.limit", "evaluation.seed", "model.lora.rank",
        "model.warm_start.steps", "dataset.train_size", "dataset.train_limit", "advantage.k",
    ],
)  # fmt: skip
def test_integer_keys_take_ranges(key: str) -> None:
    assert takes_integers(key)


@pytest.mark.parametrize(
    "key",
    [
        "learning_rate",
        "outputs",
        "dry_run",
        "advantage",
        "advantage.c",
        "evaluation.greedy",
        "loss.kl",
        "model",
        "sede",
    ],
)
def test_other_keys_do_not(key: str) -> None:
    assert not takes_integers(key)


def asked(*texts: str) -> list[tuple[str, ...]]:
    return combinations(parse_overrides(texts))


def test_lists_ranges_and_values_multiply_and_the_first_key_changes_slowest() -> None:
    assert asked("advantage=sign,drgrpo", "seed=42..43", "steps=5") == [
        ("advantage=sign", "seed=42", "steps=5"),
        ("advantage=sign", "seed=43", "steps=5"),
        ("advantage=drgrpo", "seed=42", "steps=5"),
        ("advantage=drgrpo", "seed=43", "steps=5"),
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seed=42..44,50", ["seed=42", "seed=43", "seed=44", "seed=50"]),
        ("seed=50,3..1", ["seed=50", "seed=3", "seed=2", "seed=1"]),
        ("seed=choice(1..2,9)", ["seed=1", "seed=2", "seed=9"]),
        ("seed=range(1,4)", ["seed=1", "seed=2", "seed=3"]),
        ("++seed=-1..0", ["++seed=-1", "++seed=0"]),
        ("dataset.train_path=../data", ["dataset.train_path=../data"]),
        ("outputs=1..3", ["outputs=1..3"]),
        ("seed=a..b", ["seed=a..b"]),
        ("seed='1..3'", ["seed='1..3'"]),
        ("seed='1..3',4", ["seed='1..3'", "seed=4"]),
        ("learning_rate=1e-4,2e-4", ["learning_rate=0.0001", "learning_rate=0.0002"]),
        ("model.warm_start.concise_shares=[0.5,0.5]", ["model.warm_start.concise_shares=[0.5,0.5]"]),
        ("~seed", ["~seed"]),
    ],
)
def test_one_override(text: str, values: list[str]) -> None:
    assert [combination[0] for combination in asked(text)] == values


def test_more_runs_than_anybody_means_are_refused_before_they_are_made() -> None:
    with pytest.raises(UserError, match="1000000 runs"):
        asked("seed=1..1000", "steps=1..1000")
