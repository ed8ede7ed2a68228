"""Traffic that moves: headers, promotions, guards, shadows, over HTTP, gRPC and the command."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from harness.serving import wait_until
from models.releases.calls import Releases, answer
from penstock import cli
from penstock.protocol import releases_pb2 as pb
from penstock.protocol.releases_pb2_grpc import ReleasesStub


@pytest.fixture
def stub(releases: Releases) -> Iterator[Any]:
    with grpc.insecure_channel(releases.served.grpc) as channel:
        yield ReleasesStub(channel)


@pytest.fixture(params=["grpc", "http"])
def run(
    request: pytest.FixtureRequest, releases: Releases, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs `penstock release` over a protocol; what it prints, or the error."""
    served = releases.served
    url = served.grpc if request.param == "grpc" else f"http://{served.http}"

    def run(*words: str) -> str:
        status = cli.main(["release", *words, "--url", url])
        out, err = capsys.readouterr()
        assert bool(status) is bool(err), err
        return err or out

    return run


def _metrics(releases: Releases) -> list[str]:
    with urllib.request.urlopen(releases.served.metrics) as page:
        return [line for line in page.read().decode().splitlines() if 'alias="alias"' in line]


# -- by header ----------------------------------------------------------------------------------


def test_a_header_keeps_requests_together_over_both_protocols(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(50, 50, sticky="header X-User")
    tensor = httpclient.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
    users = [f"user {number}" for number in range(12)]
    over_grpc = [answer(client, headers={"x-user": user}) for user in users]
    assert {*over_grpc} == {1, 2}
    with httpclient.InferenceServerClient(releases.served.http) as http:
        over_http = [
            int(http.infer("alias", [tensor], headers={"X-User": user}).as_numpy("Y")[0, 0])
            for user in users
        ]
    assert over_http == over_grpc
    assert {answer(client) for _ in range(60)} == {1, 2}  # without it: a draw


# -- promotions and guards ----------------------------------------------------------------------


def test_a_promotion_takes_its_steps(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(100, 0)
    shown = releases.ask("/alias/promote", {"steps": [10, 60, 100], "every": 1}, "POST")
    assert [one["weight"] for one in shown["targets"]] == [90, 10]
    assert shown["promotion"]["step"] == 1
    wait_until(lambda: releases.ask("/alias")["targets"][1]["weight"] == 100)
    told = [change["why"] for change in releases.ask("/alias")["history"][-3:]]
    assert [why.partition(": ")[2] for why in told] == [
        "step 1 of 3, 10 %",
        "step 2 of 3, 60 %",
        "step 3 of 3, 100 %",
    ]
    assert "promotion" not in releases.ask("/alias")
    assert answer(client) == 2


def test_a_guarded_step_waits_for_requests_and_a_bad_one_goes_back(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(100, 0, guard={"min_requests": 5, "max_error_rate": 0.2})
    releases.ask("/alias/promote", {"target": "new", "steps": [50, 100], "every": 1}, "POST")

    def failing_until_back() -> bool:
        for _ in range(5):
            with suppress(InferenceServerException):
                answer(client, x=-1)  # on which `new` fails
        return "promotion" not in releases.ask("/alias")

    wait_until(failing_until_back)
    last = releases.ask("/alias")["history"][-1]
    assert last["cause"] == "error_rate"
    assert "; the promotion of 'new': step 1 of 2, 50 %, ends" in last["why"]
    assert [one["weight"] for one in last["alias"]["targets"]] == [100, 0]
    assert 'penstock_alias_rollbacks_total{alias="alias",cause="error_rate"}' in "".join(
        _metrics(releases)
    )
    assert "alias 'alias' is 'old' 100 %, 'new' 0 %" in releases.served.log.read_text()


def test_a_change_ends_a_promotion(releases: Releases) -> None:
    releases.set(100, 0)
    releases.ask("/alias/promote", {"steps": [10, 100], "every": 600}, "POST")
    shown = releases.set(70, 30)
    assert "promotion" not in shown
    assert shown["history"][-1]["why"].endswith("step 1 of 2, 10 %, ends")


# -- shadows ------------------------------------------------------------------------------------


def test_a_shadow_is_compared_and_shown(
    releases: Releases, client: grpcclient.InferenceServerClient, stub: Any, run: Callable[..., str]
) -> None:
    releases.set(100, 0, shadow={"model": "new", "compare": {"atol": 0.5}})
    assert {answer(client, request_id=f"r{number}") for number in range(3)} == {1}
    wait_until(lambda: releases.ask("/alias")["shadowed"]["different"] == 3)
    shown = releases.ask("/alias")["shadowed"]
    assert [one["id"] for one in shown["differing"]] == ["r0", "r1", "r2"]
    assert "first" not in shown["differing"][0]
    over_grpc = stub.AliasShow(pb.AliasShowRequest(name="alias")).shadowed
    assert (over_grpc.different, over_grpc.differing[2].id) == (3, "r2")
    text = run("show", "alias")
    assert "shadow: 'new' 100 %: 0 equal, 3 different, 0 failed, 0 dropped" in text
    assert "r1, old: output 'Y': 1 of 1 elements differ, the first is number 1" in text
    assert 'penstock_shadow_requests_total{alias="alias",outcome="different"} 3' in _metrics(
        releases
    )
    releases.set(100, 0, shadow={"model": "new", "compare": {"atol": 1, "contents": True}})
    answer(client)
    wait_until(lambda: releases.ask("/alias")["shadowed"]["equal"] == 1)


# -- over gRPC, and the command -----------------------------------------------------------------


def test_over_grpc(releases: Releases, client: grpcclient.InferenceServerClient, stub: Any) -> None:
    watching = stub.AliasWatch(pb.AliasWatchRequest(name="wired"))
    assert not next(watching).name
    definition = pb.AliasDefinition(
        targets=[{"model": "old", "weight": 100}, {"model": "new", "weight": 0}],
        guard={"max_p99_ratio": 2},
        sticky="header x-user",
    )
    shown = stub.AliasSet(pb.AliasSetRequest(name="wired", definition=definition))
    assert shown.definition.guard.max_p99_ratio == 2
    assert [one.name for one in stub.AliasList(pb.AliasListRequest()).aliases][-1] == "wired"
    stub.AliasPromote(pb.AliasPromoteRequest(name="wired", steps=[25, 100]))
    shown = stub.AliasShow(pb.AliasShowRequest(name="wired"))
    assert [one.weight for one in shown.definition.targets] == [75, 25]
    assert shown.promotion.steps == [25, 100]
    back = stub.AliasRollback(pb.AliasRollbackRequest(name="wired"))
    assert back.history[-1].cause == "request"
    stub.AliasRemove(pb.AliasRemoveRequest(name="wired"))
    told = [next(watching).change for _ in range(4)]
    assert [one.why.partition(":")[0] for one in told] == [
        "set by a request",
        "promotion of 'new'",
        "rolled back by a request; the promotion of 'new'",
        "removed by a request",
    ]
    watching.cancel()
    with pytest.raises(grpc.RpcError) as gone:
        stub.AliasRollback(pb.AliasRollbackRequest(name="wired"))
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as wrong:
        stub.AliasSet(pb.AliasSetRequest(name="wired"))
    assert wrong.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_command(releases: Releases, run: Callable[..., str]) -> None:
    text = run("set", "byhand", "old=90", "new:1=10", "--guard=max_p99_ratio=1.5")
    assert "new:1" in text
    assert "max_p99_ratio 1.5" in text
    assert "byhand" in run("show")
    assert json.loads(run("show", "byhand", "--json"))["targets"][1]["version"] == 1
    text = run("promote", "byhand", "--steps", "20,100", "--every", "10m")
    assert "promotion: 'new:1' by 20, 100 %; step 1" in text
    run("rollback", "byhand")
    told = [line.rpartition("  ")[2] for line in run("history", "byhand").splitlines()]
    assert told[-3:-1] == ["set by a request", "promotion of 'new:1': step 1 of 2, 20 %"]
    assert run("remove", "byhand") == "byhand is removed\n"
    assert "there is no alias 'nothing'" in run("show", "nothing")
    assert "needs the name of an alias" in run("set")
    assert "takes no 'x'" in run("rollback", "byhand", "x")
    assert "add up to 50, not to 100" in run("set", "byhand", "old=50")
    assert "is not MODEL" in run("set", "byhand", "old:x=50")
    assert "--compare needs a --shadow" in run("set", "byhand", "old", "--compare=rtol=1")


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [[], "x", 7, b"null", True, b"{", b"", {"targets": "old"}, {"targets": [[]]}]
)
def test_a_body_that_is_no_definition_is_a_bad_request(releases: Releases, body: Any) -> None:
    status, error = releases.ask("/wrong", body, "POST")
    assert (status, bool(error)) == (400, True)
    releases.set(100, 0)
    wrong = body if body else b"["
    status, error = releases.ask("/alias/promote", wrong, "POST")
    assert (status, bool(error)) == (400, True)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("ring", {"targets": [{"model": "ring"}]}, "it names itself"),
        ("ring", {"targets": [{"model": "alias"}]}, "its target 'alias' is an alias"),
        ("ring", {"targets": [{"model": "old"}], "shadow": {"model": "alias"}}, "is an alias"),
        ("ring", {"targets": [{"model": "old"}], "shadow": {"model": "no"}}, "does not serve"),
        ("old", {"targets": [{"model": "new"}]}, "a model has this name"),
        ("x" * 300, {"targets": [{"model": "old"}]}, "more than 255 bytes"),
        ("none", {"targets": [{"model": "old", "weight": 1e400}]}, ""),
        ("none", {"targets": [{"model": "old", "version": 7}]}, "does not serve"),
    ],
)
def test_what_cannot_be_an_alias_is_refused(
    releases: Releases, name: str, fields: dict[str, Any], said: str
) -> None:
    releases.set(100, 0)
    status, error = releases.ask(f"/{name}", fields, "POST")
    assert status == 400
    assert said in error
