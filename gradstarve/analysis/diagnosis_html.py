"""A diagnosis as one offline HTML file: no script, nothing fetched, everything that comes from the data escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gradstarve.analysis.diagnosis import Diagnosis, Finding
from gradstarve.analysis.rollouts import Group
from gradstarve.analysis.text import percent, percent_interval, printable

SIDES = ("all-fail", "mixed", "all-pass")
MOST_COLUMNS = 40
CHART_WIDTH, CHART_HEIGHT = 600, 120

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --paper: #fff; --quiet: #5c6570; --line: #d8dde3; --card: #f5f7f9;
  --all-fail: #c2410c; --mixed: #0f766e; --all-pass: #4f6db8; --critical: #b91c1c;
  --warning: #a16207; --info: #5c6570; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --paper: #14171a; --quiet: #a3adb8; --line: #353c44;
  --card: #1d2126; --all-fail: #f0814a; --mixed: #3fb8ab; --all-pass: #93acec; --critical: #f87171; --warning: #eab84a;
  --info: #a3adb8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 48rem; padding: 1.5rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; }
.quiet { color: var(--quiet); font-size: .9rem; }
.bar { display: flex; height: 1.6rem; border-radius: .3rem; overflow: hidden; margin: 1rem 0 .4rem; }
.bar span, .key i { background: var(--side); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .9rem; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .25rem .9rem .25rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: normal; }
svg { width: 100%; height: auto; display: block; }
article { background: var(--card); border-left: .3rem solid var(--side); border-radius: .3rem; padding: .7rem 1rem;
  margin: .7rem 0; }
article h3 { margin: 0; font-size: 1rem; }
article h3 small { color: var(--side); font-weight: 600; margin-left: .5rem; }
"""


def as_html(name: str, diagnosis: Diagnosis) -> str:
    d = diagnosis.degeneracy
    shares = dict(zip(SIDES, (d.all_fail, d.mixed, d.all_pass), strict=True))
    rows = [
        ("all-fail", percent(d.all_fail), percent_interval(d.all_fail_ci95)),
        ("mixed", percent(d.mixed), percent_interval(d.mixed_ci95)),
        ("all-pass", percent(d.all_pass), percent_interval(d.all_pass_ci95)),
        ("dead (unbiased)", percent(d.d_real), percent_interval(d.d_real_ci95)),
        ("dead (plug-in, biased up)", percent(d.plug_in), ""),
        ("dead if all prompts were alike", percent(d.d_iid), ""),
        ("Jensen gap", percent(d.jensen_gap), ""),
    ]
    counted = "groups" if diagnosis.stepped else "prompts"
    title = escape(printable(name))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{title}: diagnosis</title><style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f'<p class="quiet">{escape(diagnosis.kind)}: {diagnosis.counted()}, {diagnosis.samples} completions, '
            f"groups of {diagnosis.group_size}, mean reward {diagnosis.mean_reward:.3f}</p>",
            _bar(shares),
            *_over_steps(diagnosis),
            "<h2>Findings</h2>",
            *(_card(finding) for finding in diagnosis.findings),
            "<h2>Numbers</h2>",
            _table([f"groups of {diagnosis.group_size}", "share", f"95 % over {counted}"], rows),
            "<h2>pass@k</h2>",
            _table(["k", "pass@k"], [(str(k), percent(value)) for k, value in diagnosis.pass_at_k.items()]),
            f"<h2>{escape(diagnosis.weight_unit.capitalize())} without gradient</h2>",
            _table(["advantage", "share"], [(label, percent(share)) for label, share in diagnosis.silent.items()]),
            "</body></html>",
        ]
    )


def _bar(shares: dict[str, float]) -> str:
    parts = "".join(f'<span style="--side:var(--{side});flex:{share:.6f}"></span>' for side, share in shares.items())
    key = "".join(
        f'<span><i style="--side:var(--{side})"></i>{side} {percent(share)}</span>' for side, share in shares.items()
    )
    return f'<div class="bar" aria-hidden="true">{parts}</div><div class="key">{key}</div>'


def _card(finding: Finding) -> str:
    return (
        f'<article style="--side:var(--{escape(finding.severity)})"><h3>{escape(finding.id)}'
        f"<small>{escape(finding.severity)}</small></h3>"
        f"<p>{escape(finding.evidence)}</p><p>{escape(finding.advice)}</p></article>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _over_steps(diagnosis: Diagnosis) -> list[str]:
    groups = diagnosis.groups
    columns = min(MOST_COLUMNS, len(groups) // 4)
    if not diagnosis.stepped or columns < 2:
        return []
    width = CHART_WIDTH / columns
    bars = []
    for column in range(columns):
        part = groups[column * len(groups) // columns : (column + 1) * len(groups) // columns]
        top = 0.0
        for side, share in zip(reversed(SIDES), reversed(_shares(part)), strict=True):
            height = CHART_HEIGHT * share
            if height:
                bars.append(
                    f'<rect x="{column * width:.2f}" y="{top:.2f}" width="{width - 1:.2f}" height="{height:.2f}" '
                    f'style="fill:var(--{side})"/>'
                )
            top += height
    first, last = groups[0].step, groups[-1].step
    label = f"Shares of all-fail, mixed and all-pass groups from step {first} to step {last}"
    return [
        "<h2>Over the steps</h2>",
        f'<svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" role="img" aria-label="{label}">{"".join(bars)}</svg>',
        f'<p class="quiet">Step {first} to {last}, {len(groups)} groups; all-fail below, all-pass above.</p>',
    ]


def _shares(groups: list[Group]) -> tuple[float, float, float]:
    failed = sum(group.successes == 0 for group in groups) / len(groups)
    passed = sum(group.successes == group.verdicts for group in groups) / len(groups)
    return failed, 1 - failed - passed, passed
