"""A model process that does not keep to the protocol of its link, and what it is started with."""

from __future__ import annotations

import pytest

from hosting.puppets import Puppets, eventually, everything
from penstock.core.errors import UnavailableError


@pytest.mark.parametrize("data", ["00000000050000001f5b00000000", "ff" * 5000])
@pytest.mark.slow
async def test_process_that_breaks_the_protocol_is_restarted_and_others_go_on(
    puppets: Puppets, data: str
) -> None:
    """A frame without a length is one of them: reading it makes no progress."""
    instance, other = await puppets.start(), await puppets.start(name="other_0_0")
    former, neighbour = instance.pid, other.pid
    inference = puppets.begin(instance, "say", hex=data)
    with pytest.raises(UnavailableError, match="stopped since it sent what no model process sends"):
        await everything(inference)
    assert (await puppets.ask(other, "echo")).error is None
    await eventually(lambda: instance.pid not in (None, former))
    assert (await puppets.ask(instance, "echo")).error is None
    assert other.pid == neighbour


@pytest.mark.slow
async def test_process_has_none_of_the_servers_secrets(
    puppets: Puppets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ADMIN_SECRET", "AWS_SECRET_ACCESS_KEY", "HF_HOME"):
        monkeypatch.setenv(name, "x")
    instance = await puppets.start()
    response = await puppets.ask(instance, "variables")
    names = set(str(response.parameters["names"]).split(","))
    assert {"HF_HOME", "PATH"} <= names
    assert not names & {"ADMIN_SECRET", "AWS_SECRET_ACCESS_KEY"}
