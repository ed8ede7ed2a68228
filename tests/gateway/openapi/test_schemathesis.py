"""Requests that schemathesis makes from the description: answers are those described."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CheckContext
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.serving import LOCAL, serving
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.openapi.document import document

pytestmark = pytest.mark.slow

_CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
_CONFIG = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""


def _described() -> dict[str, Any]:
    """The description, of which model that there is."""
    described = document()
    for operations in described["paths"].values():
        for operation in operations.values():
            for one in operation["parameters"]:
                if one["name"] == "model":
                    one["schema"] = {"enum": ["numbers", "other"]}
    return described


_SCHEMA = schemathesis.openapi.from_dict(_described())
_OPERATIONS: dict[str, Any] = {
    one.ok().label: one.ok() for one in _SCHEMA.get_all_operations() if isinstance(one, Ok)
}


@asynccontextmanager
async def _opened(repository: Path) -> AsyncIterator[int]:
    async with (
        serving(repository, ["numbers"], explicit_control=True) as server,
        open_gateway(server, LOCAL, ExitDeadline(1)) as port,
    ):
        yield port


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a loop of its own, since schemathesis asks and waits."""
    repository = tmp_path_factory.mktemp("models")
    (repository / "numbers" / "1").mkdir(parents=True)
    (repository / "numbers" / "config.pbtxt").write_text(_CONFIG)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = _opened(repository)
    port = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(30)
    yield f"http://127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def no_fault(_: CheckContext, response: schemathesis.Response, __: Any) -> bool | None:
    """Errors may be 500, as Triton's are, but not for a fault of the server."""
    assert "see the server's log" not in response.text
    return None


@pytest.mark.parametrize("label", _OPERATIONS)
def test_answers_are_as_described(label: str, url: str) -> None:
    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=_OPERATIONS[label].as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=[*_CHECKS, no_fault])

    check()
