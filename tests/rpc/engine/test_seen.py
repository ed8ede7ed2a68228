"""Routers behind an access policy: they find the models that they see, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from access.models import OPEN, SECRET
from access.policies import ALICE, bearer, gate
from fakes import InstallBackend
from penstock.server.seen_models import seen
from penstock.settings import GrpcSettings
from rpc.engine.scripted import (
    ScriptedBackend,
    answers,
    asking,
    failure,
    pb,
    stub_of,
    write_models,
)
from rpc.serving import open_models


async def test_a_model_that_is_not_seen_is_none(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings
) -> None:
    install_backend("scripted", ScriptedBackend)
    alice: Any = tuple(bearer(ALICE).items())
    async with open_models(write_models(tmp_path / "models", OPEN, SECRET)) as server:
        server.access = gate()
        async with stub_of(seen(server), local) as stub:
            told = await stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=alice)
            named = (*alice, ("penstock-model", SECRET))
            code, _ = await failure(answers(stub, asking(), metadata=named))
            *_, end = await answers(stub, asking(), metadata=alice)
    assert (told.served_model_name, code) == (OPEN, grpc.StatusCode.NOT_FOUND)
    assert end.complete.finish_reason == "length"
