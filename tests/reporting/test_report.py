"""The report: one file, no request, every text escaped, nothing hidden."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest
import synthetic

from gradstarve.runs.folder import RunFolder
from gradstarve.runs.status import write_failure

HOSTILE = "<script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)>\u202e</td></table>&amp;"


class Page(HTMLParser):
    """Tags with their attributes, and whether they close in order."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(module_outputs: Any) -> str:
    outputs = module_outputs
    outputs.base()
    outputs.cell("drgrpo", [70, 74], tables=True)
    (config, _) = outputs.cell("sign", [80, 84], tables=True, model__name=HOSTILE)
    rows = pd.DataFrame(
        {"question_id": ["1", "2"], "question": ["1+1=", HOSTILE], "gold": ["2", "3"],
         "completion": [HOSTILE, "x" * 5000], "extracted": [HOSTILE, None], "verdict": ["right", "wrong"]}
    )  # fmt: skip
    final = {"step": 20, "n": 100, "right": 80, "truncated": 0.0}
    synthetic.write_evaluation(RunFolder.of(config), config, final, rows=rows)
    failed = outputs.config("sign", 4, 50, model__name=HOSTILE)
    RunFolder.of(failed).write_config(failed)
    write_failure(RunFolder.of(failed).path, ValueError(HOSTILE))
    code, _, err = outputs.call("report")
    assert code == 0, err
    return (outputs.path / "report" / "index.html").read_text()


def test_text_from_models_is_text(page: str) -> None:
    parsed = Page(page)
    assert parsed.open == []
    assert "script" not in {tag for tag, _ in parsed.tags}
    assert not any(key.startswith("on") for _, attributes in parsed.tags for key in attributes)
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert "\u202e" not in page
    assert "x" * 1000 not in re.sub(r"base64,[^']*", "", page)


def test_it_asks_for_nothing(page: str) -> None:
    parsed = Page(page)
    assert "link" not in {tag for tag, _ in parsed.tags}
    policy = next(a["content"] for tag, a in parsed.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    for tag, attributes in parsed.tags:
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/png;base64,")
            assert attributes["alt"]
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")


def test_it_can_be_read_by_keyboard(page: str) -> None:
    parsed = Page(page)
    anchors = {(a["href"] or "")[1:] for tag, a in parsed.tags if tag == "a"}
    ids = {a["id"] for _, a in parsed.tags if "id" in a}
    assert anchors <= ids
    scrolling = [a for _, a in parsed.tags if a.get("class") == "scroll"]
    assert scrolling
    assert all(a.get("tabindex") == "0" and a.get("role") == "region" and a.get("aria-label") for a in scrolling)


def test_what_is_missing_and_what_was_run_stand_in_it(page: str) -> None:
    text = re.sub(r"<[^>]+>", " ", re.sub(r"base64,[^']*", "", page))
    missing = text[text.index("What is missing") :]
    assert "sign-g4-s50-" in missing
    assert "failed (ValueError" in missing
    assert "transformers 5.17.0: 4 runs" in text
    assert "aaaaaaaaaaaa: 4 runs" in text
