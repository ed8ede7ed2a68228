"""What it costs a warm call to be known: by key, by token, by certificate, or not at all.

    python -m loadtest.scenarios.access

`identity` of 64 bytes over gRPC and HTTP. All servers run beside each other and are measured in
turns; `over us` is what a call costs the server's process more than the same call, headers and TLS
included, costs one without a policy.
"""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from loadtest.authority import client_context
from loadtest.load import Load
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.access_changes import Credentials, Files, flags
from loadtest.scenarios.unary import measured, write_message, write_repository

_IN_FLIGHT = 8
_BODY = {
    "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [4], "data": [1.0, 2.0, 3.0, 4.0]}]
}


@dataclass(frozen=True, slots=True)
class _Variant:
    """A server, and how its callers are known; `floor` is the server to compare with."""

    name: str
    floor: str
    server: Server
    headers: dict[str, str]
    files: tuple[str, str, str] = ("", "", "")


def _start(servers: ExitStack, files: Files, given: Credentials) -> Iterator[_Variant]:
    folder = files.folder
    models = folder.parent / "models"
    *of_tls, of_policy = flags(folder)
    plain = servers.enter_context(penstock(models))
    asked = servers.enter_context(penstock(models, of_policy))
    trusted = _trusted(files, given)
    encrypted = servers.enter_context(penstock(models, *of_tls, tls=trusted))
    certified = servers.enter_context(penstock(models, *of_tls, of_policy, tls=trusted))
    root, pem, key = (
        str(folder / name) for name in ("server-root.pem", "client.pem", "client.key")
    )
    shown = root, pem, key
    for kind, text in (("key", given.key), ("token", given.token)):
        headers = {"authorization": f"Bearer {text}"}
        yield _Variant(f"no policy, {kind}", "", plain, headers)
        yield _Variant(kind, f"no policy, {kind}", asked, headers)
    yield _Variant("no policy, TLS", "", encrypted, {}, shown)
    yield _Variant("certificate", "no policy, TLS", certified, {}, shown)


def _trusted(files: Files, given: Credentials) -> ssl.SSLContext:
    context = client_context(files.server.pem, given.pair, "http/1.1")
    context.check_hostname = False
    return context


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as servers:
        folder = Path(temporary)
        write_repository(folder / "models")
        message = write_message(folder, "identity", 16)
        body = folder / "body.json"
        body.write_text(json.dumps(_BODY))
        (folder / "access").mkdir()
        files = Files(folder / "access")
        given = files.credentials(1)
        (files.folder / "server-root.pem").write_bytes(files.server.pem)
        for name, content in zip(("client.pem", "client.key"), given.pair, strict=True):
            (files.folder / name).write_bytes(content)
        variants = list(_start(servers, files, given))

        def measure() -> list[Row]:
            loads = (("gRPC", message, ""), ("HTTP", str(body), "/v2/models/identity/infer"))
            return [
                row
                for protocol, file, path in loads
                for row in _rows(variants, protocol, file, path, options.seconds)
            ]

        rows = median_rows(options.rounds, measure)
    show("What it costs a call to be known", _compared(rows), options.json)


def _rows(
    variants: list[_Variant], protocol: str, file: str, path: str, seconds: float
) -> Iterator[Row]:
    for variant in variants:
        server = variant.server
        port = server.http_port if path else server.grpc_port
        target = f"localhost:{port}"
        load = Load(
            target,
            file,
            _IN_FLIGHT,
            seconds,
            path=path,
            headers=variant.headers,
            certificates=variant.files,
        )
        outcome, cpu = measured(server, load)
        yield {
            "protocol": protocol,
            "caller": variant.name,
            "against": variant.floor,
            "calls/s": outcome.calls_per_second,
            "cpu us/call": cpu,
            "p50 ms": outcome.latency_p50,
        }


def _compared(rows: list[Row]) -> list[Row]:
    """The rows, with what each costs more than the one that it is held against."""
    found = {(row["protocol"], row["caller"]): float(row["cpu us/call"]) for row in rows}
    return [
        {
            **row,
            "over us": float(row["cpu us/call"])
            - found[row["protocol"], row["against"] or row["caller"]],
        }
        for row in rows
    ]


if __name__ == "__main__":
    main()
