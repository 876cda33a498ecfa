"""Why a model of the hub cannot be had, in one line: from a server on this machine that answers as the hub does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradstarve.errors import UserError
from gradstarve.learning.policy import load_policy

from .small_models import save_small_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# In a process of its own: huggingface_hub reads its address and cache when it is imported.
SCRIPT = r'''
import hashlib, http.server, json, os, sys, threading
from pathlib import Path
from urllib.parse import urlparse

config_file, model, cache, commit = sys.argv[1:]
asked = []

class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does, for some repositories."""

    def do_GET(self):
        path = urlparse(self.path).path
        asked.append(path)
        token = self.headers.get("authorization")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name = "/".join(parts[:2])
        if name == "team/gated" or name == "team/locked" and parts[2] != "tree":
            return self.fail(403 if token else 401, "GatedRepo")
        if name == "team/broken":
            return self.fail(500, None)
        if name == "team/denied":
            return self.fail(401, None, "Invalid credentials in Authorization header")
        if name not in ("team/public", "team/locked"):
            return self.fail(401 if token is None else 404, "RepoNotFound")
        if commit not in parts:
            return self.fail(404, "RevisionNotFound")
        file = Path(model, *parts[parts.index(commit) + 1:])
        if parts[2] == "tree":
            body = json.dumps([
                {"type": "file", "path": str(one.relative_to(model)), "size": one.stat().st_size, "oid": "0" * 40}
                for one in Path(model).rglob("*") if one.is_file()
            ]).encode()
        elif file.is_file():
            body = file.read_bytes()
        else:
            return self.fail(404, "EntryNotFound")
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", '"' + hashlib.sha256(body).hexdigest() + '"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def fail(self, status, code, message=None):
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ.update(HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}", HF_HOME=cache)
for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(name, None)

from gradstarve.errors import UserError
from gradstarve.learning.policy import load_policy
from gradstarve.runs.config import read_config

def said(id, revision=commit, token=None):
    if token:
        os.environ["HF_TOKEN"] = token
    plain = json.loads(Path(config_file).read_text())
    plain["model"] |= {"id": id, "revision": revision}
    try:
        return type(load_policy(read_config(plain)).model).__name__
    except UserError as error:
        return str(error)
    finally:
        os.environ.pop("HF_TOKEN", None)

found = {
    "gated": said("team/gated"),
    "gated, with a token": said("team/gated", token="hf_none"),
    "gated files": said("team/locked"),
    "no such model": said("team/publik"),
    "no such revision": said("team/public", "f" * 40),
    "broken": said("team/broken"),
    "a token that is none": said("team/denied", token="hf_none"),
    "no id at all": said("a/b/c"),
}
asked.clear()
Path(model, "original").mkdir()
Path(model, "original", "consolidated.00.pth").write_text("twice the download")
found["there"] = said("team/public")
found["asked"] = sorted(set(asked))
server.shutdown()
server.server_close()
found["no network, kept"] = said("team/public")
found["no network"] = said("team/other")
# As a cache is that another program filled: without the list of a commit's files.
for listing in Path(cache).rglob("trees/*.json"):
    listing.unlink()
found["no network, kept by another"] = said("team/public")
print(json.dumps(found))
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, compose_config: Any) -> dict[str, Any]:
    from gradstarve.runs.config import plain_config

    folder = tmp_path_factory.mktemp("hub")
    model = save_small_model("llama", folder / "model")
    config = compose_config("model=llama3_1_8b_instruct", "dataset=gsm8k", "model.dtype=float32")
    (folder / "config.json").write_text(json.dumps(plain_config(config)))
    printed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "config.json"), str(model), str(folder / "cache"), COMMIT],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers: dict[str, Any] = json.loads(printed.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gated", "team/gated is gated: ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"),
        (
            "gated files",
            "team/locked is gated: ask for access on its page, then log in with `hf auth login` or set HF_TOKEN",
        ),
        (
            "gated, with a token",
            "team/gated is gated, and the account of your token has no access: ask for it on the model's page",
        ),
        (
            "no such model",
            "team/publik is neither a folder nor a model of the hub that you may read; check model.id (a private one "
            "needs `hf auth login`)",
        ),
        ("no such revision", f"team/public has no revision {'f' * 40}; check model.revision"),
        (
            "broken",
            "team/broken could not be loaded: the hub answered 500; try again, or "
            f"`hf download team/broken --revision {COMMIT}` with a network, or name a folder in model.id",
        ),
        ("a token that is none", "team/denied could not be loaded: the hub refuses your token; `hf auth login` again"),
        (
            "no id at all",
            "a/b/c is neither a folder nor a model of the hub that you may read; check model.id (a private one needs "
            "`hf auth login`)",
        ),
        (
            "no network",
            "team/other is not in the local cache, and the hub cannot be reached; "
            f"`hf download team/other --revision {COMMIT}` with a network, or name a folder in model.id",
        ),
    ],
)
def test_one_line_says_why(found: dict[str, Any], asked: str, message: str) -> None:
    assert found[asked] == f"model llama3_1_8b_instruct: {message}"


def test_what_is_there_is_loaded_at_its_commit_and_then_without_a_network(found: dict[str, Any]) -> None:
    for when in ("there", "no network, kept", "no network, kept by another"):
        assert found[when] == "LlamaForCausalLM", when
    assert f"/team/public/resolve/{COMMIT}/model.safetensors" in found["asked"]
    assert all(COMMIT in path for path in found["asked"])
    assert not any("original" in path for path in found["asked"])


def test_offline_says_how_to_have_it(compose_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests run with HF_HUB_OFFLINE set."""
    config = compose_config("model=qwen3_5_9b", "dataset=gsm8k")
    with pytest.raises(UserError) as refused:
        load_policy(config)
    assert str(refused.value) == (
        "model qwen3_5_9b: Qwen/Qwen3.5-9B is not in the local cache, and HF_HUB_OFFLINE is set; `hf download "
        f"Qwen/Qwen3.5-9B --revision {config.model.revision}` with a network, or name a folder in model.id"
    )


def test_a_folder_that_is_no_model_is_one_line(compose_config: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match=rf"^model qwen3_8b: {tmp_path} is a folder that cannot be loaded \(.*\)$"):
        load_policy(compose_config("model=qwen3_8b", "dataset=gsm8k", f"model.id={tmp_path}"))
