"""The demo repository and a server for all tests that only read or ask, and clients of servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from harness.serving import Served, serving
from penstock.demo import write_demo


@pytest.fixture(scope="session")
def demo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("onnx", "safetensors"):
        pytest.importorskip(package)
    directory = tmp_path_factory.mktemp("demo")
    write_demo(directory, report=print)
    return directory


@pytest.fixture(scope="session")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the language model and the encoder; files that need another have their own."""
    log = tmp_path_factory.mktemp("served") / "log"
    explicit = ("--model-control-mode=explicit", "--load-model=tiny_llm", "--load-model=minilm")
    with serving(demo_repository, log, *explicit) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    """A plain client of the server."""
    with httpx.Client(base_url=f"http://{served.http}", timeout=60, verify=False) as http:
        yield http


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of the server."""
    base = f"http://{served.http}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60) as client:
        yield client
