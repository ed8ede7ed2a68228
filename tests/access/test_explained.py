"""Explanations of requests to an ensemble, by callers who may not see its members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from access.models import OPEN, SECRET, guarded, write_ensemble
from access.policies import ADMIN, ALICE, bearer
from gateway import serving as gateway
from penstock.settings import GrpcSettings
from penstock.tracing.explain import EXPLAIN
from rpc.serving import connected, infer_request

NAME = f"{OPEN}-ensemble"
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}


@pytest.fixture
def models(repository: Path) -> Path:
    write_ensemble(repository, NAME)
    return repository


def check(hidden: str, shown: str) -> None:
    """What is hidden has times, and no name, instance or batch."""
    ensemble, member = json.loads(hidden)["requests"]
    assert ensemble["model"] == NAME
    assert set(member) == {"parent", "start_us", "total_us"}
    assert SECRET not in hidden
    _, named = json.loads(shown)["requests"]
    assert (named["model"], named["instance"]) == (SECRET, f"{SECRET}_0")


@pytest.mark.parametrize("call", ["infer", "generate", "generate_stream"])
async def test_http_names_no_member_that_is_not_seen(models: Path, call: str) -> None:
    body = BODY if call == "infer" else {"IN": [1]}
    async with guarded(models) as server, gateway.connected(server) as client:
        answers = [
            await client.post(
                f"/v2/models/{NAME}/{call}", json=body, headers={**bearer(who), EXPLAIN: "1"}
            )
            for who in (ALICE, ADMIN)
        ]
    if call == "generate_stream":
        texts = [each.text.rpartition("data: ")[2] for each in answers]
    else:
        texts = [each.headers[EXPLAIN] for each in answers]
    check(*texts)


@pytest.mark.parametrize("streams", [False, True])
async def test_grpc_names_no_member_that_is_not_seen(
    models: Path, local: GrpcSettings, streams: bool
) -> None:
    request, texts = infer_request(NAME, IN=np.ones(1, np.float32)), []
    async with guarded(models) as server, connected(server, local) as client:
        for who in (ALICE, ADMIN):
            sent: Any = [*bearer(who).items(), (EXPLAIN, "1")]
            if streams:
                call = client.stream(iter([request]), metadata=sent)
                assert [each async for each in call]
            else:
                call = client.method("ModelInfer")(request, metadata=sent)
                await call
            texts.append(dict(await call.trailing_metadata())[EXPLAIN])
    check(*texts)
