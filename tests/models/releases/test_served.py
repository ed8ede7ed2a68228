"""Aliases of a server: traffic by weight, changed while it flows, and back by itself."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from harness.serving import wait_until
from models.releases.calls import Releases, answer


def test_requests_go_by_weight(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(75, 25)
    found = Counter(answer(client) for _ in range(400))
    assert 40 <= found[2] <= 160  # beyond six standard deviations
    releases.set(0, 100)
    assert {answer(client) for _ in range(20)} == {2}


def test_clients_see_a_model(releases: Releases, client: grpcclient.InferenceServerClient) -> None:
    releases.set(75, 25)
    assert client.is_model_ready("alias")
    assert client.get_model_metadata("alias").name == "alias"
    assert client.get_model_config("alias").config.backend == "python"
    told = client.get_inference_statistics("alias").model_stats
    assert [one.name for one in told] == ["old", "new"]
    index = {one.name: one for one in client.get_model_repository_index().models}
    assert index["alias"].reason == "alias of 'old' 75 %, 'new' 25 %"
    assert index["alias"].state == "READY"


def test_a_change_loses_no_request(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(100, 0)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(answer, client) for _ in range(400)]
        for share in (1, 5, 25, 100, 0, 50):
            releases.set(100 - share, share)
        assert {call.result() for call in calls} <= {1, 2}


def test_a_sequence_stays_where_it_began(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(100, 0, sticky="sequence")
    assert answer(client, sequence_id=7, sequence_start=True) == 1
    releases.set(0, 100, sticky="sequence")
    assert answer(client, sequence_id=7) == 1
    assert answer(client, sequence_id=8, sequence_start=True, sequence_end=True) == 2
    assert answer(client, sequence_id=7, sequence_end=True) == 1
    assert answer(client, sequence_id=7, sequence_start=True, sequence_end=True) == 2


def test_requests_of_one_user_stay_together(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(50, 50, sticky="parameter user")
    users = [str(number) for number in range(20)]
    first = [answer(client, parameters={"user": user}) for user in users]
    assert [answer(client, parameters={"user": user}) for user in users] == first
    assert set(first) == {1, 2}


def test_the_share_of_a_model_that_is_unloaded_goes_to_the_others(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.set(50, 50)
    client.unload_model("new")
    assert {answer(client) for _ in range(20)} == {1}
    assert "'new' does not serve" in releases.served.log.read_text()
    client.load_model("new")
    assert {answer(client) for _ in range(100)} == {1, 2}


def test_a_bad_release_goes_back_by_itself(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    guard = {"min_requests": 5, "max_error_rate": 0.2, "window": 60}
    releases.set(50, 50, guard=guard)

    def failing_until_back() -> bool:
        for _ in range(5):
            with suppress(InferenceServerException):
                answer(client, x=-1)  # on which `new` fails
        return bool(releases.ask("/alias")["targets"][1]["weight"] == 0)

    wait_until(failing_until_back)
    why = releases.ask("/alias")["history"][-1]["why"]
    assert why.startswith("'new' failed ")
    assert {answer(client, x=-1) for _ in range(10)} == {1}


def test_by_hand(releases: Releases, client: grpcclient.InferenceServerClient) -> None:
    shown = releases.set(50, 50)
    assert [one["model"] for one in shown["targets"]] == ["old", "new"]
    assert releases.ask("/alias/rollback", {}, "POST") == 200
    assert [one["weight"] for one in releases.ask("/alias")["targets"]] == [100, 0]
    assert [one["name"] for one in releases.ask()] == ["alias"]
    assert releases.ask("/alias", method="DELETE") == 200
    assert releases.ask("/alias", method="DELETE") == (404, "there is no alias 'alias'")
    with pytest.raises(InferenceServerException, match="unknown model"):
        answer(client)
    assert releases.ask("/alias")["history"][-1]["alias"] is None


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("old", "new", "a model has this name"),
        ("other", "alias", "is an alias"),
        ("other", "nothing", "'nothing' does not serve"),
    ],
)
def test_names_that_cannot_be(releases: Releases, name: str, target: str, said: str) -> None:
    releases.set(50, 50)
    status, error = releases.ask(f"/{name}", {"targets": [{"model": target}]}, "POST")
    assert (status, said in error) == (400, True)


def test_a_model_that_is_not_loaded_keeps_its_name(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    releases.ask("/alias", method="DELETE")
    client.unload_model("new")
    wait_until(lambda: not client.is_model_ready("new"))
    status, error = releases.ask("/new", {"targets": [{"model": "old"}]}, "POST")
    client.load_model("new")
    assert (status, "a model has this name" in error) == (400, True)


def test_a_file_declares_aliases_and_is_followed(
    releases: Releases, client: grpcclient.InferenceServerClient
) -> None:
    file = releases.repository / "aliases.toml"
    file.write_text('[declared]\ntargets = [ { model = "new", version = 1 } ]\n')
    wait_until(lambda: client.is_model_ready("declared"))
    assert answer(client, "declared") == 2
    file.write_text("[declared\n")
    wait_until(lambda: "aliases.toml is not taken" in releases.served.log.read_text())
    assert answer(client, "declared") == 2
    file.write_text('[declared]\ntargets = [ { model = "old" } ]\n')
    wait_until(lambda: answer(client, "declared") == 1)
    file.unlink()
    wait_until(lambda: not client.is_model_ready("declared"))


def test_what_is_kept_of_aliases_that_are_gone_is_bounded(releases: Releases) -> None:
    for number in range(105):
        path = f"/gone-{number}"
        releases.ask(path, {"targets": [{"model": "old"}]}, "POST")
        assert releases.ask(path, method="DELETE") == 200
    assert releases.ask("/gone-0")[0] == 404
    assert len(releases.ask("/gone-104")["history"]) == 2
