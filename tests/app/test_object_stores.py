"""Servers of the three clouds' protocols, with the start line that is used with Triton."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from harness.serving import serving, wait_until
from programs.places import find

CONFIG = """
backend: "identity"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }]
"""
OBJECTS = {"repo/m/config.pbtxt": CONFIG, "repo/m/1/keep": "", "repo/n/config.pbtxt": CONFIG}

ACCOUNT = "devstoreaccount1"
# The key that Azure's emulator has documented for its one account.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class Cloud:
    """A server of a cloud's protocol: how it is started, filled, and named to our server."""

    program: str
    command: Callable[[Path, int], list[str]]
    put: Callable[[str, Mapping[str, str]], None]
    variables: Callable[[str], dict[str, str]]
    address: Callable[[str], str]


def put_amazon(url: str, objects: Mapping[str, str]) -> None:
    httpx.put(f"{url}/bucket")
    for key, text in objects.items():
        httpx.put(f"{url}/bucket/{key}", content=text).raise_for_status()


def put_google(url: str, objects: Mapping[str, str]) -> None:
    httpx.post(f"{url}/storage/v1/b?project=p", json={"name": "bucket"})
    for key, text in objects.items():
        target = f"{url}/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(key, safe='')}"
        httpx.post(target, content=text).raise_for_status()


def put_azure(url: str, objects: Mapping[str, str]) -> None:
    azure(url, "bucket?restype=container", "", "\nrestype:container")
    for key, text in objects.items():
        blob = {"x-ms-blob-type": "BlockBlob"}
        azure(url, f"bucket/{key}", text, "", blob).raise_for_status()


def azure(
    url: str, path: str, body: str, query: str, more: Mapping[str, str] | None = None
) -> httpx.Response:
    """A request that is signed with the account's key, as Azure's documentation says."""
    stamp = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    headers = dict(sorted({**(more or {}), **stamp}.items()))
    length = str(len(body)) if body else ""
    resource = f"/{ACCOUNT}/{ACCOUNT}/{path.partition('?')[0]}{query}"
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = f"PUT\n\n\n{length}\n\n\n\n\n\n\n\n\n{named}{resource}"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    target = f"{url}/{ACCOUNT}/{path}"
    return httpx.put(target, content=body, headers=headers)


CLOUDS = {
    "S3": Cloud(
        "moto_server",
        lambda folder, port: ["-H", "127.0.0.1", "-p", str(port)],
        put_amazon,
        lambda url: {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
        lambda url: f"s3://{url}/bucket/repo",
    ),
    "Google": Cloud(
        "fake-gcs-server",
        lambda folder, port: [
            *("-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"),
            *("-port", str(port), "-public-host", f"127.0.0.1:{port}"),
        ],
        put_google,
        lambda url: {"STORAGE_EMULATOR_HOST": url},
        lambda url: "gs://bucket/repo",
    ),
    "Azure": Cloud(
        "azurite-blob",
        lambda folder, port: [
            *("--location", str(folder), "--blobPort", str(port)),
            *("--silent", "--skipApiVersionCheck"),
        ],
        put_azure,
        lambda url: {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{url}/{ACCOUNT}",
        },
        lambda url: f"as://{ACCOUNT}/bucket/repo",
    ),
}


@contextmanager
def running(cloud: Cloud, folder: Path) -> Iterator[str]:
    """The cloud's server; its URL, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [find(cloud.program), *cloud.command(folder, port)]
    with (folder / "cloud.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(url))
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


def missing(name: str) -> str:
    program = CLOUDS[name].program
    return "" if find(program) else f"{program}: python tests/programs/install.py {program}"


@pytest.mark.slow
@pytest.mark.contract("R-29", "R-30", "R-31", "K-21")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(name, missing(name))) for name in CLOUDS],
)
def test_a_repository_of_a_cloud_is_served(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = CLOUDS[name]
    with running(cloud, tmp_path) as url:
        cloud.put(url, OBJECTS)
        for variable, value in cloud.variables(url).items():
            monkeypatch.setenv(variable, value)
        repository = f"--model-repository={cloud.address(url)}"
        cache = f"--repository-cache-dir={tmp_path / 'cache'}"
        poll = ("--model-control-mode=poll", "--repository-poll-secs=1")
        given = InferInput("IN", [1, 2], "FP32")
        given.set_data_from_numpy(np.ones((1, 2), np.float32))
        with (
            serving(None, tmp_path / "log", repository, cache, *poll) as served,
            InferenceServerClient(served.grpc) as client,
        ):
            assert client.infer("m", [given]).as_numpy("OUT").tolist() == [[1, 1]]
            assert client.is_model_ready("n")
            cloud.put(url, {"repo/later/config.pbtxt": CONFIG})
            wait_until(lambda: client.is_model_ready("later"))
