"""A stand-in for wandb's server on this machine: what wandb's client sends is real, and what it is told is remembered.

It answers the few GraphQL operations of wandb 0.31 that a run and `wandb sync` need, and writes a run's rows where the
client says that they belong, as the file stream of wandb does.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "p", "name": "gradstarve", "entity": {"id": "e", "name": "lab"}}


class Server(ThreadingHTTPServer):
    """`runs` by id: `history` (decoded rows), `summary`, `exit`, `asked` (what the run was created with), `files`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, dict[str, Any]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed hangs up."""


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        stream = re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path)
        if stream:
            self._stream(self.server.runs[stream[1]], body)
        self._answer({} if stream else {"data": self._graphql(body)})

    def _answer(self, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, run: dict[str, Any], body: dict[str, Any]) -> None:
        for name, part in (body.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                run["history"][part["offset"] : part["offset"] + len(part["content"])] = map(
                    json.loads, part["content"]
                )
            if name == "wandb-summary.json":
                run["summary"] = json.loads(part["content"][-1])
        if body.get("complete"):
            run["exit"].append(body["exitcode"])

    def _graphql(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = body.get("variables") or {}
        run = self.server.runs.get(asked.get("name") or asked.get("run") or "")
        named = re.search(r"(?:query|mutation)\s+(\w+)", body["query"])
        match named[1] if named else "":
            case "Viewer":
                return {"viewer": {"id": "u", "entity": "lab", "username": "u", "flags": "{}", "teams": {"edges": []}}}
            case "UpsertBucket":
                if new := run is None:
                    run = {"history": [], "summary": {}, "exit": [], "asked": asked, "files": set()}
                    self.server.runs[asked["name"]] = run
                bucket = {
                    "id": asked["name"],
                    "name": asked["name"],
                    "displayName": asked["name"],
                    "sweepName": None,
                    "project": PROJECT,
                    "historyLineCount": len(run["history"]),
                }
                return {"upsertBucket": {"bucket": bucket, "inserted": new}}
            case "RunResumeStatus":
                return {"model": {**PROJECT, "bucket": _bucket(asked["name"], run) if run else None}}
            case "CreateRunFiles":
                assert run is not None
                run["files"] |= set(asked["files"])
                files = [{"name": name, "uploadUrl": f"{self.server.url}/upload/{name}"} for name in asked["files"]]
                return {"createRunFiles": {"runID": asked["run"], "uploadHeaders": [], "files": files}}
            case "ArtifactType":
                return {"project": {"artifact": None}}
            case "CreateArtifact":
                # Committed: it is there already, and no more is asked.
                artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"latestArtifact": {"id": "a"}}}
                return {"createArtifact": {"artifact": artifact}}
        return {}


def _bucket(name: str, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "displayName": name,
        "historyLineCount": len(run["history"]),
        "eventsLineCount": 0,
        "logLineCount": 0,
        "historyTail": json.dumps([json.dumps(row) for row in run["history"][-1:]]),
        "eventsTail": "[]",
        "summaryMetrics": json.dumps(run["summary"]),
        "config": run["asked"]["config"],
        "tags": run["asked"]["tags"] or [],
        "notes": None,
        # What the client takes for the sign that the run was started before.
        "wandbConfig": json.dumps({"t": {"1": [1]}}),
    }
