"""A model hub on the loopback: the routes that ``snapshot_download`` asks, with the hub's headers and faults."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

COMMIT = "5" * 40
Fault = Literal["none", "gated", "unknown", "rate_limited", "breaks_off"]


class Hub(ThreadingHTTPServer):
    """Serves one repository of the given files; ``fault`` may change between requests."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.fault: Fault = "none"
        self.requests = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _serve(self, *, body: bool) -> None:
        self.server.requests += 1
        if self.server.fault in ("gated", "unknown", "rate_limited"):
            self._refuse()
        elif self.path.startswith("/api/models/") and "/tree/" in self.path:
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in self.server.files.items()
            ]
            self._send(json.dumps(tree).encode(), "application/json", body=body)
        elif self.path.startswith("/api/models/"):
            info = {"id": "owner/name", "sha": COMMIT, "siblings": [], "tags": []}
            self._send(json.dumps(info).encode(), "application/json", body=body)
        else:
            self._file(self.path.rsplit("/", 1)[1], body=body)

    def _refuse(self) -> None:
        status, code = {
            "gated": (403, "GatedRepo"),
            "unknown": (404, "RepoNotFound"),
            "rate_limited": (429, ""),
        }[self.server.fault]
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, name: str, *, body: bool) -> None:
        data = self.server.files[name]
        self._send(data, "application/octet-stream", body=body, etag=_etag(data))

    def _send(self, data: bytes, kind: str, *, body: bool, etag: str | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if not body:
            return
        if etag and self.server.fault == "breaks_off" and len(data) > 1000:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.connection.close()
            return
        self.wfile.write(data)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@contextmanager
def running_hub(files: dict[str, bytes]) -> Iterator[Hub]:
    """A hub that listens until the context is left."""
    hub = Hub(files)
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
