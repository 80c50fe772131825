"""A data-set hub on the loopback: the routes that ``datasets`` asks for one repository of Parquet files."""

import hashlib
import io
import json
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its imports deprecate is not ours
    import datasets

Fault = Literal["none", "gated", "unknown_revision", "overloaded"]
Row = Mapping[str, str]

CARD = b"""---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-00000-of-00001.parquet
  - split: test
    path: main/test-00000-of-00001.parquet
---
"""


def parquet(rows: Sequence[Row]) -> bytes:
    """Rows as the hub stores them."""
    sink = io.BytesIO()
    datasets.Dataset.from_list([dict(row) for row in rows]).to_parquet(sink)
    return sink.getvalue()


class DatasetHub(ThreadingHTTPServer):
    """Serves ``files`` at ``commit`` and nothing at any other revision; ``fault`` may change between requests."""

    daemon_threads = True

    def __init__(self, commit: str, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commit = commit
        self.files = files
        self.fault: Fault = "none"
        self.log: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running_dataset_hub(commit: str, files: Mapping[str, bytes]) -> Iterator[DatasetHub]:
    """The hub, as long as the context lasts."""
    with DatasetHub(commit, {"README.md": CARD, **files}) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: DatasetHub

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _serve(self, body: bytes = b"") -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.log.append(f"{self.command} {self.path} {body.decode()}")
        if hub.fault != "none":
            status, code = {
                "gated": (401, "GatedRepo"),
                "unknown_revision": (404, "RevisionNotFound"),
                "overloaded": (500, ""),
            }[hub.fault]
            self._send(status, b"", {"X-Error-Code": code})
        elif hub.commit not in path:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith("/api/"):
            self._api(path, body)
        else:
            self._file(path.split(f"/resolve/{hub.commit}/")[1])

    def _api(self, path: str, body: bytes) -> None:
        hub = self.server
        if "/paths-info/" in path:
            wanted = json.loads(body)["paths"]
            self._json([self._entry(name) for name in hub.files if name in wanted])
        elif "/tree/" in path:
            self._json([self._entry(name) for name in hub.files])
        else:
            siblings = [{"rfilename": name} for name in hub.files]
            self._json({"id": "openai/gsm8k", "sha": hub.commit, "siblings": siblings, "tags": []})

    def _entry(self, name: str) -> dict[str, object]:
        data = self.server.files[name]
        return {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}

    def _file(self, name: str) -> None:
        data = self.server.files.get(name)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._send(200, data, {"ETag": f'"{_etag(data)}"'})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"X-Repo-Commit": self.server.commit, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
