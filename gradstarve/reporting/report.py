"""The report: one HTML file that opens offline. Every text in it is escaped; its own policy forbids any request."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template

import pandas as pd

from gradstarve.reporting.build import Drawing
from gradstarve.reporting.cells import Setting
from gradstarve.reporting.claims import Reading, tally
from gradstarve.reporting.paper import the_paper
from gradstarve.reporting.study import Study
from gradstarve.reporting.tables.notes import describe
from gradstarve.reporting.tables.table import Table
from gradstarve.runs.folder import RunFolder

MOST_SETTINGS = 8  # in full; of the others the report names the files
MOST_TEXT = 600  # characters of a completion
OPEN_KINDS = {"table1", "table2", "transfer", "pass-at-k", "difficulty", "matched", "settings"}
_CLASSES = {"agrees": "agrees", "disagrees": "disagrees", "not tested": "untested"}


def report_html(study: Study, tables: Sequence[Table], drawings: Sequence[Drawing], readings: Sequence[Reading]) -> str:
    """The whole page. `tables` and `drawings` are those of `study`."""
    settings = list(study.settings)[:MOST_SETTINGS]
    sections = [("question", "The question", _question()), ("reading", "What the runs say", _reading(readings, study))]
    across = [table for table in tables if table.kind in {"matched", "settings", "table3", "repeats"}]
    if across:
        sections.append(("across", "Across settings", "".join(_table(table) for table in across)))
    for setting in settings:
        mine = [table for table in tables if table.name.endswith(f"-{setting.name}") and _of(table, setting, study)]
        sections.append((f"setting-{setting.name}", setting.name, _setting(setting, mine, drawings)))
    if len(study.settings) > MOST_SETTINGS:
        rest = "".join(
            f"<li>{_text(setting.name)}: {len(setting.points)} runs</li>" for setting in study.settings[MOST_SETTINGS:]
        )
        folder = _text(str(study.folder("tables")))
        sections.append(("more", "More settings", f"<p>Their tables are in {folder}:</p><ul>{rest}</ul>"))
    sections += [
        ("missing", "What is missing", _missing(study)),
        ("provenance", "What was run, with what", _provenance(study)),
    ]
    title = "Gradient starvation, measured" + (f": sweep {study.label}" if study.label else "")
    return Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8")).substitute(
        title=_text(title),
        lead=_text(_lead(study, readings)),
        contents="".join(f'<li><a href="#{_anchor(key)}">{_text(name)}</a></li>' for key, name, _ in sections),
        body="\n".join(
            f'<section id="{_anchor(key)}"><h2>{_text(name)}</h2>\n{body}</section>' for key, name, body in sections
        ),
        footer=_text(f"Made by gradstarve from the run folders below {study.outputs}. Paper: {the_paper().source}."),
    )


def _of(table: Table, setting: Setting, study: Study) -> bool:
    """A setting's name may end another's: the longest that fits is meant."""
    fitting = [other.name for other in study.settings if table.name.endswith(f"-{other.name}")]
    return max(fitting, key=len) == setting.name


def _lead(study: Study, readings: Sequence[Reading]) -> str:
    runs = len({point.run for setting in study.settings for point in setting.points})
    lacking = len(study.lacking())
    missing = f" {lacking} wanted runs have no result; see below." if lacking else ""
    settings = f"{len(study.settings)} setting{'s' if len(study.settings) > 1 else ''}"
    return f"{runs} finished runs in {settings}.{missing} The paper's claims, read against them: {tally(readings)}."


def _question() -> str:
    paper = the_paper()
    return (
        "<p>With binary rewards, a group whose completions are all right or all wrong gives a group-mean-centred "
        "advantage of "
        "zero: its compute is spent and nothing is learned. "
        f"The paper ({_text(paper.source)}, “{_text(str(paper.content['title']))}”) says that with small groups "
        "this starves "
        "training, and that a fixed reference (<em>sign</em>: +1 if right, −1 if wrong) repairs it. The question "
        "here is what "
        "the runs below say about each of its claims, in the setting in which they were made. A verdict speaks of "
        "that setting; "
        "it is the paper's only where the table says so.</p>"
    )


def _reading(readings: Sequence[Reading], study: Study) -> str:
    rows = []
    for reading in readings:
        css = _CLASSES.get(reading.verdict, "open")
        where = (
            f" <span class='caption'>[{_text(reading.setting)}]</span>"
            if len(study.settings) > 1 and reading.setting
            else ""
        )
        rows.append(
            f"<tr><td class='verdict {css}'>{_text(reading.verdict)}</td><td>{_text(reading.claim)}{where}</td>"
            f"<td>{_text(reading.evidence)}</td></tr>"
        )
    rule = (
        "A difference counts where its exact two-sided permutation p is below 0.05; one against a single number "
        "where its 95 % "
        "t-interval lies on one side of it. The claims are read one by one, without a correction for their number."
    )
    head = (
        "<tr><th scope='col'>verdict</th><th scope='col'>the paper's claim</th><th scope='col'>evidence here</th></tr>"
    )
    return (
        f"<p class='caption'>{_text(rule)}</p><div class='scroll' role='region' aria-label='Claims' tabindex='0'>"
        f"<table class='claims'><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _setting(setting: Setting, tables: Sequence[Table], drawings: Sequence[Drawing]) -> str:
    prominent = [table for table in tables if table.kind in OPEN_KINDS]
    others = [table for table in tables if table.kind not in OPEN_KINDS]
    parts = [f"<p>{_text(describe(setting, None))}</p>"]
    for number, table in enumerate(prominent):
        said = {earlier.legend for earlier in prominent[:number]}
        parts.append(_table(replace(table, caption="", legend="" if table.legend in said else table.legend)))
    mine = [drawing for drawing in drawings if drawing.setting == setting.name]
    if mine:
        parts.append(f"<div class='figures'>{''.join(_figure(drawing) for drawing in mine)}</div>")
    parts += [
        f"<details><summary>{_text(table.title)}</summary>{_table(table, title=False)}</details>" for table in others
    ]
    parts.append(_examples(setting))
    return "\n".join(parts)


def _table(table: Table, title: bool = True) -> str:
    columns = table.readable()
    head = "".join(f"<th scope='col'{_css(c.kind)}>{_text(c.head)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_css(c.kind)}>{_text(table.shown(row, c))}</td>" for c in columns) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{_text(note)}</li>" for note in table.notes)
    told = f"{table.caption} {table.legend}".strip()
    return (
        (f"<h3>{_text(table.title)}</h3>" if title else "")
        + (f"<p class='caption'>{_text(told)}</p>" if told else "")
        + f"<div class='scroll' role='region' aria-label='{_text(table.title)}' tabindex='0'>"
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        + (f"<ul class='notes'>{notes}</ul>" if notes else "")
    )


def _css(kind: str) -> str:
    return " class='text'" if kind == "text" else ""


def _figure(drawing: Drawing) -> str:
    png = next(file for file in drawing.files if file.suffix == ".png").read_bytes()
    # Width and height are at fixed places of a PNG's header.
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    css = " class='wide'" if width > 1000 else ""
    alt = _text(drawing.caption)
    data = base64.b64encode(png).decode()
    image = f"<img src='data:image/png;base64,{data}' alt='{alt}' width='{width}' height='{height}'>"
    caption = f"{_text(drawing.caption)} <code>{_text(drawing.name)}.pdf</code>"
    return f"<figure{css}>{image}<figcaption>{caption}</figcaption></figure>"


def _examples(setting: Setting) -> str:
    """A few answers as the models gave them: text from models, so it is shown as text only."""
    parts = []
    for cell in [*([setting.base] if setting.base else []), *setting.cells][:6]:
        for point in cell.points[:1]:
            file = point.folder / "evaluations" / setting.evaluation / f"step-{int(point.final['step']):06d}.parquet"
            if not file.is_file():
                continue
            rows = pd.read_parquet(file, columns=["question", "gold", "completion", "extracted", "verdict"])
            chosen = pd.concat([rows[rows["verdict"] == "right"].head(2), rows[rows["verdict"] != "right"].head(2)])
            size = f", G = {cell.group_size}" if cell.group_size else ""
            parts.append(f"<h4>{_text(cell.label)}{size} <code>{_text(point.run)}</code></h4>")
            for row in chosen.itertuples():
                text = str(row.completion)
                text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … ({len(text)} characters)"
                parts.append(
                    f"<p><strong>{_text(str(row.verdict))}</strong>: {_text(str(row.question)[:MOST_TEXT])} "
                    f"<span class='caption'>(gold {_text(str(row.gold))}, read as "
                    f"{_text(str(row.extracted))})</span></p>"
                    f"<pre tabindex='0'>{_text(text)}</pre>"
                )
    return f"<details><summary>Some answers, as they were given</summary>{''.join(parts)}</details>" if parts else ""


def _text(text: str) -> str:
    """Text as HTML. Control characters, and those that reorder a line, are shown as what they are."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text), quote=True)


def _missing(study: Study) -> str:
    lines = [
        f"{setting.name}: {absent.run}: {absent.state}{'' if absent.why == absent.state else f' ({absent.why})'}"
        for setting in study.settings
        for cell in [*([setting.base] if setting.base else []), *setting.cells]
        for absent in cell.absent
    ]
    placed = {absent for line in lines for absent in re.findall(r": (\S+): ", line)}
    lines += [f"{run}: declared, in no setting with results" for run in study.lacking() if run not in placed]
    lines += [f"{row.run}: {row.state} ({row.why}); its config cannot be read" for row in study.loose]
    if not lines:
        return "<p>Nothing that was declared is missing.</p>"
    return f"<ul class='notes'>{''.join(f'<li>{_text(line)}</li>' for line in dict.fromkeys(lines))}</ul>"


def _provenance(study: Study) -> str:
    points = {point.run: point for setting in study.settings for point in setting.points}.values()
    codes = Counter(
        f"{str((point.result.get('code') or {}).get('commit') or 'unknown')[:12]}"
        f"{' with uncommitted changes' if (point.result.get('code') or {}).get('dirty') else ''}"
        for point in points
    )
    versions = Counter(
        f"{name} {version}" for point in points for name, version in (point.result.get("versions") or {}).items()
    )
    hardware: Counter[str] = Counter()
    for setting in study.settings[:MOST_SETTINGS]:
        for cell in setting.cells:
            for point in cell.points[:1]:
                found = RunFolder(point.folder).provenance().get("hardware") or {}
                if isinstance(found, dict) and found:
                    gpus = found.get("gpus") or []
                    hardware[
                        ", ".join(map(str, gpus)) or f"no GPU; {found.get('cores')} cores, {found.get('system')}"
                    ] += len(cell.points)
    sweeps = [f"{sweep['name']}: {' '.join(sweep['command'])} ({len(sweep['runs'])} runs)" for sweep in study.sweeps]
    return (
        "<dl>"
        + _entries("code", (f"{code}: {count} runs" for code, count in codes.most_common()))
        + _entries("versions", (f"{name}: {count} runs" for name, count in versions.most_common(30)))
        + _entries("hardware", (f"{name}: about {count} runs" for name, count in hardware.most_common()))
        + _entries("sweeps", sweeps)
        + "</dl><p class='caption'>Which run folders stand behind each number: outputs/tables/provenance.json, or "
        "<code>gradstarve tables --explain table1/sign/mean</code>.</p>"
    )


def _entries(name: str, values: Iterable[str]) -> str:
    return f"<dt>{_text(name)}</dt><dd>{'<br>'.join(_text(value) for value in values) or '–'}</dd>"


def _anchor(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", key)
