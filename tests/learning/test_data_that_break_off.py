"""Data of the hub that cannot be read to their end: one line, whatever class of error the libraries raise."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from gradstarve.errors import UserError
from gradstarve.learning.questions import load_questions


class BreaksOff(http.server.BaseHTTPRequestHandler):
    """A hub that knows no README and hangs up on every other question."""

    def do_GET(self) -> None:
        if "/resolve/" not in self.path:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(404)
        self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BreaksOff) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        for settings in (datasets.config, huggingface_hub.constants):
            monkeypatch.setattr(settings, "HF_HUB_OFFLINE", False)
        yield
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def said(compose_config: Any, hub_id: str) -> str:
    config = compose_config(
        "model=smollm2_135m", "dataset=gsm8k", f"dataset.hub_id={hub_id}", "dataset.hub_config=null"
    )
    with pytest.raises(UserError) as refused:
        load_questions(config.dataset)
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith(f"dataset gsm8k: {hub_id} could not be loaded from the hub (")
    assert line.endswith("); with a local copy set dataset.train_path and dataset.eval_path")
    return line


def test_a_connection_that_breaks_off(compose_config: Any, hub: None) -> None:
    assert "(RemoteProtocolError: Server disconnected" in said(compose_config, "team/data")


def test_a_file_that_breaks_off_says_what_is_wrong_with_it(compose_config: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n{"question": "1+2?", "ans')
    assert "JSON parse error" in said(compose_config, str(folder))
