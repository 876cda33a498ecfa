"""What stands under a table: everything that is missing, mismatched or easily misread, by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gradstarve.reporting.arms import PAPER_ARMS, UNTRAINED
from gradstarve.reporting.cells import Cell, Point, Setting
from gradstarve.runs.rows import MUCH_TRUNCATED

RULES_APART = 0.01
MISSING_MARK, MISMATCH_MARK = "†", "‡"


def absence_notes(cells: Iterable[Cell]) -> list[str]:
    """One note for each run that was wanted or begun and has no value here, by name."""
    return [
        f"{MISSING_MARK} {absent.run}: {absent.state}{'' if absent.why == absent.state else f' ({absent.why})'}"
        for cell in cells
        for absent in cell.absent
    ]


def odd_runs(points: Sequence[Point]) -> dict[str, str]:
    """Runs whose code or library versions are not those of most runs here, with what differs."""
    odd: dict[str, list[str]] = defaultdict(list)
    commits = Counter(_code(point) for point in points)
    if len(commits) > 1:
        common, count = commits.most_common(1)[0]
        for point in points:
            if _code(point) != common:
                odd[point.run].append(f"code {_code(point)} (most, {count} of {len(points)}: {common})")
    libraries = sorted({name for point in points for name in _versions(point)})
    for name in libraries:
        versions = Counter(_versions(point).get(name) for point in points)
        if len(versions) > 1:
            common_version = versions.most_common(1)[0][0]
            for point in points:
                if _versions(point).get(name) != common_version:
                    odd[point.run].append(f"{name} {_versions(point).get(name)} (most: {common_version})")
    return {run: "; ".join(what) for run, what in odd.items()}


def odd_notes(odd: Mapping[str, str]) -> list[str]:
    """Runs that differ in the same way share a note."""
    runs_by_what: dict[str, list[str]] = defaultdict(list)
    for run, what in odd.items():
        runs_by_what[what].append(run)
    return [f"{MISMATCH_MARK} {', '.join(runs)}: {what}" for what, runs in runs_by_what.items()]


def code_note(points: Sequence[Point]) -> list[str]:
    """Said where no run's code is what a commit says."""
    dirty = [point.run for point in points if (point.result.get("code") or {}).get("dirty")]
    if dirty and len(dirty) == len(points):
        return ["All runs were made from a working tree with uncommitted changes."]
    return []


def mark(cell: Cell, odd: Mapping[str, str]) -> str:
    """What is put behind a cell's n."""
    return (MISSING_MARK if cell.absent else "") + (MISMATCH_MARK if any(run in odd for run in cell.runs) else "")


def missing_arm_note(cells: Sequence[Cell], setting: Setting, arms: Sequence[str] = PAPER_ARMS) -> list[str]:
    """The paper's arms that were not even asked for."""
    there = {cell.advantage for cell in cells}
    if setting.base is not None:
        there.add(UNTRAINED)
    lacking = [arm for arm in arms if arm not in there]
    return [f"Arms of the paper's table that were not run here: {', '.join(lacking)}."] if lacking else []


def cell_notes(cells: Sequence[Cell]) -> list[str]:
    """What must stand under every number that is made of these cells: who is missing, and what may mislead."""
    return [*absence_notes(cells), *caution_notes(cells)]


def caution_notes(cells: Sequence[Cell]) -> list[str]:
    """Truncation above 20 %, completions that could not be graded."""
    notes = []
    several_sizes = len({cell.group_size for cell in cells if cell.group_size is not None}) > 1
    for cell in cells:
        label = f"{cell.label}, G = {cell.group_size}" if several_sizes and cell.group_size is not None else cell.label
        training = [share for point in cell.points if (share := point.share("truncated")) is not None]
        asked = [point.final.get("truncated") or 0.0 for point in cell.points]
        told = [
            f"{100 * sum(shares) / len(shares):.0f} % of the {what}"
            for shares, what in ((training, "training completions"), (asked, "evaluated completions"))
            if shares and sum(shares) / len(shares) > MUCH_TRUNCATED
        ]
        if told:
            notes.append(
                f"{label}: {' and '.join(told)} had no end within the completion limit, so the limit may decide "
                "what is measured."
            )
        undecided = sum(point.final.get("unverifiable") or 0 for point in cell.points)
        if undecided:
            notes.append(f"{label}: {undecided} answers could not be graded; they count as not right.")
        left_out = sum(point.result.get("unverifiable") or 0 for point in cell.points)
        if left_out:
            notes.append(f"{label}: {left_out} training completions could not be graded; groups are without them.")
    return notes


def rule_notes(cells: Sequence[Cell]) -> list[str]:
    """Arms that the strict and the flexible rule of finding an answer put more than a point apart."""
    notes = []
    for cell in cells:
        pairs = [(point.accuracy_under("strict"), point.accuracy_under("flexible")) for point in cell.points]
        both = [(strict, flexible) for strict, flexible in pairs if strict is not None and flexible is not None]
        if not both:
            continue
        strict, flexible = (fmean(side) for side in zip(*both, strict=True))
        if round(abs(strict - flexible), 9) > RULES_APART:
            counted = sorted({str(point.final["rule"]) for point in cell.points if point.final.get("rule")})
            told = f"; the {'/'.join(counted)} rule counts here" if counted else ""
            notes.append(
                f"{cell.label}: {100 * strict:.1f} % right where answers are found by the strict rule, "
                f"{100 * flexible:.1f} % by the flexible one{told}."
            )
    return notes


def neighbour_notes(setting: Setting, settings: Sequence[Setting]) -> list[str]:
    """Other settings of the same model and data, whose runs are not mixed in."""
    notes = []
    mine = {point.run for point in setting.points}
    for other in settings:
        # The same runs, evaluated in another way as well.
        if {point.run for point in other.points} <= mine:
            continue
        if other is setting or (other.model, other.dataset, other.asked) != (
            setting.model,
            setting.dataset,
            setting.asked,
        ):
            continue
        differs = [
            f"{key} {other.apart.get(key)} (here {setting.apart.get(key)})"
            for key in sorted({*other.apart, *setting.apart})
            if other.apart.get(key) != setting.apart.get(key)
        ]
        if other.reward != setting.reward:
            differs = [f"reward {other.reward} (here {setting.reward})"]
        if other.evaluation != setting.evaluation and not differs:
            differs = [f"evaluation {other.evaluation} (here {setting.evaluation})"]
        notes.append(f"Not mixed in: {len(other.points)} runs of {other.name}, which differ in {'; '.join(differs)}.")
    return notes[:5] + (
        [f"... and {len(notes) - 5} more settings of this model and data set."] if len(notes) > 5 else []
    )


def describe(setting: Setting, group_size: int | None) -> str:
    """The setting in words: what a caption states."""
    config = setting.config
    loss, lora = config.get("loss", {}), config["model"].get("lora")
    rollout = config.get("rollout", {})
    if not setting.points:
        return f"{_model_told(config)}, untrained. {_asked_told(setting, config)}."
    training = [
        f"{config['steps']} steps",
        f"{config['prompts_per_step']} prompts a step",
        *([f"G = {group_size}"] if group_size is not None else []),
        f"learning rate {config['learning_rate']:g} ({config.get('optimizer', {}).get('schedule', '?')})",
        f"completion limit {config['completion_limit']} tokens",
        f"sampled at temperature {rollout.get('temperature', '?'):g}" if "temperature" in rollout else "",
        f"LoRA rank {lora['rank']}, alpha {lora['alpha']}" if lora else "all weights trained",
        f"loss aggregation {loss.get('aggregation', '?')}",
        f"clip {loss.get('clip_low', 0):g}/{loss.get('clip_high', 0):g}",
        f"KL coefficient {loss['kl']:g}" if loss.get("kl") else "no KL",
        *_control_told(loss),
    ]
    return (
        f"{_model_told(config)} on {setting.dataset}: {', '.join(part for part in training if part)}. "
        f"{_asked_told(setting, config)}."
    )


def _asked_told(setting: Setting, config: Mapping[str, Any]) -> str:
    decoding = setting.decoding
    everyone = [*setting.points, *(setting.base.points if setting.base else [])]
    asked = sorted({point.final.get("questions", point.final["n"]) for point in everyone})
    how = (
        "greedy"
        if decoding.get("greedy", True)
        else f"{setting.samples} samples at temperature {decoding.get('temperature'):g}"
    )
    which = "training questions (not held out)" if setting.on_training else "questions"
    limit = decoding.get("completion_limit") or config["completion_limit"]
    told = f", completion limit {limit}" if not setting.points or limit != config["completion_limit"] else ""
    return f"Evaluated on {'/'.join(f'{n:,}' for n in asked)} {which} of {setting.asked}, {how}{told}"


def _control_told(loss: Mapping[str, Any]) -> list[str]:
    if loss.get("reward") == "random":
        return [f"REWARDED BY A COIN (right {100 * loss['random_rate']:g} %), not by the verdict"]
    if loss.get("reward") == "length":
        most = f" with at most {loss['length_limit']} tokens" if loss.get("length_limit") else ""
        return [f"REWARDED FOR ENDING{most} within the limit, not by the verdict"]
    return []


def seeds_told(cells: Sequence[Cell]) -> str:
    """ "seeds 42–48", or each by name where they are not a range."""
    seeds = sorted({point.seed for cell in cells for point in cell.points if point.seed is not None})
    return f"Seed{'s' if len(seeds) > 1 else ''} {seeds_named(seeds)}." if seeds else ""


def seeds_named(seeds: Sequence[int]) -> str:
    """ "42–48", or each of the (sorted) seeds where they are not a range."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))


def _model_told(config: Mapping[str, Any]) -> str:
    model = config["model"]
    return str(model.get("id") or model["name"])


def _code(point: Point) -> str:
    code = point.result.get("code") or {}
    commit = str(code.get("commit") or "unknown")[:10]
    return f"{commit}{' with uncommitted changes' if code.get('dirty') else ''}"


def _versions(point: Point) -> dict[str, Any]:
    return point.result.get("versions") or {}
