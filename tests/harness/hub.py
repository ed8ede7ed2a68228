"""A hub that speaks as much of Hugging Face's API as its library asks for a repository."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from harness.http_threads import Quiet, QuietServer, answering


@dataclass(slots=True)
class Hub:
    """One repository, `owner/models`, whose files are one commit; `url` is the endpoint.

    While it is not to `answer`, requests wait; `asked` is set by the first of them.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    gets: Counter[str] = field(default_factory=Counter)
    answer: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    @property
    def commit(self) -> str:
        """The commit of the files as they are."""
        return _sha(repr(sorted(self.files.items())).encode())


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub that answers until the end."""
    found = Hub()
    found.answer.set()
    server = QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": found}))
    with answering(server) as address:
        found.url = f"http://{address}"
        try:
            yield found
        finally:
            found.answer.set()


class _Handler(Quiet, BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not self.hub.answer.is_set():
            self.hub.asked.set()
            self.hub.answer.wait()
        path = unquote(urlsplit(self.path).path)
        api, resolve = "/api/models/owner/models", "/owner/models/resolve/"
        if path.startswith(f"{api}/tree/"):
            self._json([self._entry(name) for name in self.hub.files])
        elif path.startswith(api):
            self._info(path.removeprefix(api).rpartition("/")[2])
        elif path.startswith(resolve):
            self._file(path.removeprefix(resolve).partition("/")[2])
        else:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _info(self, revision: str) -> None:
        if revision not in ("", "main", self.hub.commit):
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [
            {"rfilename": name, "blobId": _sha(text), "size": len(text)}
            for name, text in self.hub.files.items()
        ]
        self._json({"id": "owner/models", "sha": self.hub.commit, "siblings": siblings})

    def _entry(self, name: str) -> dict[str, object]:
        text = self.hub.files[name]
        return {"type": "file", "path": name, "size": len(text), "oid": _sha(text)}

    def _file(self, name: str) -> None:
        if self.command == "GET":
            self.hub.gets[name] += 1
        text = self.hub.files[name]
        headers = {"X-Repo-Commit": self.hub.commit, "ETag": f'"{_sha(text)}"'}
        self._answer(200, text, headers)

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _sha(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
