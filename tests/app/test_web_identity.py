"""A bucket whose keys a token service gives to a web identity, as on Kubernetes at Amazon."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tritonclient.grpc import InferenceServerClient

from app.test_remote_repositories import ask, flags, put_model
from harness.http_threads import Quiet, answering
from harness.object_store import object_store
from harness.serving import serving, wait_until
from rpc.certificates import needs_openssl, write_certificates

ROLE = "arn:aws:iam::123456789012:role/models"


@dataclass(slots=True)
class TokenService:
    """Gives `key`, which is to be asked for anew at once; `asked` are the fields of requests."""

    key: str
    url: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)

    def answer(self, fields: dict[str, list[str]]) -> bytes:
        self.asked.append(fields)
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
        keys = (
            f"<AccessKeyId>{self.key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
            f"<SessionToken>t</SessionToken><Expiration>{end}</Expiration>"
        )
        for tag in ("Credentials", "AssumeRoleWithWebIdentityResult"):
            keys = f"<{tag}>{keys}</{tag}>"
        return f"<Response>{keys}</Response>".encode()


@contextmanager
def token_service(certificates: Path, key: str) -> Iterator[TokenService]:
    """A service at `url`, over TLS."""
    service = TokenService(key)

    class Handler(Quiet, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            answer = service.answer(parse_qs(urlsplit(self.path).query or body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    service.url = f"https://localhost:{server.server_port}"
    with answering(server):
        yield service


@needs_openssl
@pytest.mark.slow
@pytest.mark.contract("R-29")
def test_keys_of_a_web_identity_that_expire_are_asked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = write_certificates(tmp_path)
    (tmp_path / "token").write_text("signed")
    with object_store() as store, token_service(certificates, "first") as service:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "root.pem"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        store.key = "first"
        put_model(store, "a", 1)
        poll = flags(store, tmp_path, "--model-control-mode=poll", "--repository-poll-secs=1")
        with serving(None, tmp_path / "log", *poll) as served:
            assert ask(served, "a") == 1
            service.key = store.key = "second"
            put_model(store, "b", 2)
            with InferenceServerClient(served.grpc) as client:
                wait_until(lambda: client.is_model_ready("b"))
            assert [ask(served, "a"), ask(served, "b")] == [1, 2]
    assert {each["RoleArn"][0] for each in service.asked} == {ROLE}
    assert {each["WebIdentityToken"][0] for each in service.asked} == {"signed"}
