"""The modes of perf_analyzer that are for this server, as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROFILE = "profile.json"
"""The file in the folder of places that modes export times of requests into."""


@dataclass(frozen=True, slots=True)
class Secure:
    """A server with TLS on both ports: where it listens, and where its metrics are, without."""

    grpc: str
    http: str
    metrics: str


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses of servers, of which `mutual` wants certificates of clients, and files."""

    grpc: str
    http: str
    metrics: str
    secure: Secure
    mutual: Secure
    folder: Path

    def named(self) -> dict[str, str]:
        """The places by the names that arguments have for them."""
        return {
            "grpc": self.grpc,
            "http": self.http,
            "metrics": self.metrics,
            "tls": self.secure.grpc,
            "https": self.secure.http,
            "mutual": self.mutual.grpc,
            "mutual_https": self.mutual.http,
            "folder": str(self.folder),
        }


@dataclass(frozen=True, slots=True)
class Mode:
    """Arguments, in which the names of `Places.named` stand in braces.

    Without a `table` there is only an exported profile.
    """

    arguments: str
    model: str = "identity"
    rows: tuple[str, ...] = ()  # of the contract
    table: bool = True


_GRPC, _HTTP = "-i grpc -u {grpc}", "-i http -u {http}"
_SSL = "--ssl-grpc-use-ssl --ssl-grpc-root-certifications-file={folder}/root.pem"
SECURE_GRPC = f"-i grpc -u {{tls}} {_SSL}"
_MUTUAL_TLS = (
    f"-i grpc -u {{mutual}} {_SSL} --ssl-grpc-private-key-file={{folder}}/client.key"
    " --ssl-grpc-certificate-chain-file={folder}/client.pem"
)
_HTTPS = "-i http -u {https} --ssl-https-ca-certificates-file={folder}/root.pem"
_MUTUAL_HTTPS = (
    "-i http -u {mutual_https} --ssl-https-ca-certificates-file={folder}/root.pem"
    " --ssl-https-client-certificate-file={folder}/client.pem"
    " --ssl-https-private-key-file={folder}/client.key"
)
_SHARED = "--shared-memory=system"
_ALL_WIRES = ("PA-01", "PA-02", "PA-04", "PA-05", "PA-06", "PA-09", "PA-13", "PA-19", "PA-20")
BOTH_SIDES: Mapping[str, Mode] = {
    name: Mode(arguments, rows=(*_ALL_WIRES, "ST-10"))
    for name, arguments in {
        "unary": f"{_GRPC} --concurrency-range=2",
        "async": f"{_GRPC} --concurrency-range=2 --async",
        "stream": f"{_GRPC} --concurrency-range=2 --async --streaming",
        "HTTP": f"{_HTTP} --concurrency-range=2",
        "HTTP, async": f"{_HTTP} --concurrency-range=2 --async -H name:value",
        "batches": f"{_GRPC} --concurrency-range=2 -b 4",
        "constant rate": f"{_GRPC} --request-rate-range=50",
        "shared memory": f"{_GRPC} --concurrency-range=2 {_SHARED}",
        "shared memory, stream": f"{_GRPC} --concurrency-range=2 --async --streaming {_SHARED}"
        " --output-shared-memory-size=64",
        "shared memory, HTTP": f"{_HTTP} --concurrency-range=2 {_SHARED}",
    }.items()
}
"""Modes whose tables have a part of the server's, for each wire."""

MODES: Mapping[str, Mode] = {
    **BOTH_SIDES,
    "intervals": Mode(f"{_GRPC} --request-intervals={{folder}}/intervals", rows=("PA-07",)),
    "poisson": Mode(
        f"{_GRPC} --request-rate-range=80 --request-distribution=poisson", rows=("PA-06",)
    ),
    "periodic concurrency": Mode(
        f"{_GRPC} --async --streaming --periodic-concurrency-range=1:3:1 --request-period=3"
        " --input-data={folder}/periodic.json --profile-export-file={folder}/profile.json",
        "repeat",
        ("PA-07",),
        table=False,
    ),
    "decoupled": Mode(
        f"{_GRPC} --async --streaming --input-data={{folder}}/repeat.json"
        " --profile-export-file={folder}/profile.json",
        "repeat",
        ("PA-21",),
    ),
    "request count": Mode(f"{_GRPC} --concurrency-range=2 --request-count=40", rows=("PA-10",)),
    "count windows": Mode(
        f"{_HTTP} --measurement-mode=count_windows --measurement-request-count=30", rows=("PA-09",)
    ),
    "percentile": Mode(f"{_GRPC} --percentile=95 --verbose-csv", rows=("PA-09", "PA-19")),
    "latency threshold": Mode(
        f"{_GRPC} --concurrency-range=1:2:1 -l 2000 --max-threads=2", rows=("PA-11",)
    ),
    "binary search": Mode(
        f"{_GRPC} --concurrency-range=1:3:1 -l 2000 --binary-search", rows=("PA-11",)
    ),
    "sequences": Mode(
        f"{_GRPC} --concurrency-range=2 --sequence-length=5 --sequence-id-range=100:200",
        "sequence",
        ("PA-12",),
    ),
    "sequences in turns at a rate": Mode(
        f"{_GRPC} --async --streaming --request-rate-range=60 --num-of-sequences=2"
        " --sequence-length=4 --sequence-length-variation=50 --serial-sequences",
        "sequence",
        ("PA-12",),
    ),
    "sequences of a file": Mode(
        f"{_HTTP} --input-data={{folder}}/streams.json", "sequence", ("PA-12",)
    ),
    "data of a file": Mode(f"{_GRPC} --input-data={{folder}}/shaped.json -b 3", rows=("PA-02",)),
    "strings": Mode(f"{_GRPC} --string-length=20", "embedder", ("PA-02",)),
    "zeros": Mode(f"{_HTTP} --input-data=zero", rows=("PA-02",)),
    "validation": Mode(f"{_GRPC} --input-data={{folder}}/expected.json", rows=("PA-24",)),
    "metrics": Mode(
        f"{_GRPC} --verbose-csv --collect-metrics --metrics-url={{metrics}} --metrics-interval=100",
        rows=("PA-17",),
    ),
    "traces": Mode(
        f"{_GRPC} --trace-level=TIMESTAMPS --trace-rate=100 --trace-count=1 --log-frequency=0",
        rows=("PA-18",),
    ),
    "ensemble": Mode(f"{_GRPC}", "ensemble", ("PA-23",)),
    "composing models": Mode(f"{_GRPC} --bls-composing-models=second", "bls", rows=("PA-22",)),
    "OpenAI's embeddings": Mode(
        "--service-kind=openai --endpoint=v1/embeddings -i http -u {http} --async"
        " --input-data={folder}/openai.json",
        "embedder",
        ("PA-03",),
    ),
    "parameters": Mode(f"{_GRPC} --request-parameter=color:red:string", rows=("PA-15",)),
    "gzip": Mode(f"{_GRPC} --grpc-compression-algorithm=gzip", rows=("PA-16",)),
    "deflate": Mode(f"{_GRPC} --grpc-compression-algorithm=deflate", rows=("PA-16",)),
    "TLS": Mode(SECURE_GRPC, rows=("PA-16",)),
    "mutual TLS": Mode(_MUTUAL_TLS, rows=("PA-16",)),
    "HTTPS": Mode(_HTTPS, rows=("PA-16",)),
    "mutual HTTPS": Mode(_MUTUAL_HTTPS, rows=("PA-16",)),
    "JSON": Mode(
        f"{_HTTP} --input-tensor-format=json --output-tensor-format=json -b 2", rows=("PA-14",)
    ),
}
