"""Replicas on Ray, without Ray: how many there should be, which come and go, what is replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client_models import write_client_models
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as releases
from penstock.ray.changes import (
    Change,
    ChangeLog,
    MadeChanges,
    NotAppliedError,
    NumberedChanges,
    replay,
)
from penstock.ray.endpoints import PROTOCOLS, Endpoint, EndpointFiles, assignment
from penstock.ray.replica_set import Address, Pace, ReplicaSet, Start, State, Stop
from penstock.ray.scaling import Counted, Decider, LoadMeter, ReplicaLoad, ScalingPolicy
from penstock.ray.server_process import (
    GoneError,
    ServerProcess,
    StartError,
    metrics_of_page,
    refused,
)

# -- how many ------------------------------------------------------------------------------------

_POLICIES = st.builds(
    lambda least, more, queue, tokens, up, down: ScalingPolicy(
        least, least + more, queue, tokens, up, down
    ),
    st.integers(1, 4),
    st.integers(0, 6),
    st.floats(0.01, 1.0),
    st.sampled_from([0.0, 1000.0]),
    st.floats(0, 20),
    st.floats(0, 200),
)
_LOADS = st.builds(ReplicaLoad, st.floats(0, 10), st.floats(0, 1e5))
_SAMPLES = st.lists(st.tuples(st.floats(0.1, 30), st.lists(_LOADS, max_size=4)), max_size=40)


@given(_POLICIES, _SAMPLES)
def test_replicas_stay_within_the_bounds(
    policy: ScalingPolicy, samples: Sequence[tuple[float, list[ReplicaLoad]]]
) -> None:
    decider, now, replicas = Decider(policy), 0.0, policy.least
    for elapsed, loads in samples:
        now += elapsed
        replicas = decider.decide(now, replicas, loads)
        assert policy.least <= replicas <= policy.most


@given(_POLICIES, _SAMPLES)
def test_a_change_needs_the_load_to_last(
    policy: ScalingPolicy, samples: Sequence[tuple[float, list[ReplicaLoad]]]
) -> None:
    """Since the change before, and for as long as the policy says, it was wanted each time."""
    decider, now, replicas = Decider(policy), 0.0, policy.least
    history: list[tuple[float, int]] = []
    for elapsed, loads in samples:
        now += elapsed
        history.append((now, policy.wanted(replicas, loads)))
        decided = decider.decide(now, replicas, loads)
        if decided == replicas:
            continue
        more = decided > replicas
        lasts = policy.up_seconds if more else policy.down_seconds
        run = [at for at, wanted in history if wanted == replicas or (wanted > replicas) != more]
        since = [at for at, _ in history if at > (run[-1] if run else -1.0)]
        assert now - since[0] >= lasts
        assert decided in [wanted for at, wanted in history if at in since]
        history, replicas = [], decided


@given(_POLICIES, st.integers(1, 10), st.lists(_LOADS, min_size=1, max_size=10), st.floats(1, 5))
def test_more_load_is_never_answered_with_fewer(
    policy: ScalingPolicy, replicas: int, loads: list[ReplicaLoad], factor: float
) -> None:
    more = [ReplicaLoad(load.queue_seconds * factor, load.tokens * factor) for load in loads]
    assert policy.wanted(replicas, more) >= policy.wanted(replicas, loads)


@given(st.floats(0, 20_000), st.integers(1, 12))
def test_tokens_that_stay_the_same_come_to_rest(tokens: float, first: int) -> None:
    policy = ScalingPolicy(1, 12, tokens=1000.0, up_seconds=0, down_seconds=0)
    decider, replicas, seen = Decider(policy), first, []
    for now in range(30):
        replicas = decider.decide(now, replicas, [ReplicaLoad(0.0, tokens / replicas)] * replicas)
        seen.append(replicas)
    assert len(set(seen[15:])) == 1
    assert seen[-1] * 1000.0 >= min(tokens, 12_000.0) - 1e-6


def test_replicas_that_tell_nothing_change_nothing() -> None:
    policy = ScalingPolicy(1, 5, up_seconds=0, down_seconds=0)
    assert Decider(policy).decide(1.0, 3, []) == 3


@pytest.mark.parametrize(
    "wrong",
    [{"least": 0}, {"least": 3, "most": 2}, {"queue_seconds": 0}, {"tokens": -1}],
    ids=str,
)
def test_wrong_policy_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ScalingPolicy(**wrong)


def test_wait_is_the_mean_of_what_was_answered_in_between() -> None:
    meter = LoadMeter()
    meter.load(Counted(0.0, answered=100, waited_seconds=50))
    assert meter.load(Counted(1.0, answered=110, waited_seconds=51)).queue_seconds == 0.1


def test_what_waits_counts_before_it_is_answered() -> None:
    """Nothing was answered, and something has waited for three seconds at least."""
    meter = LoadMeter()
    loads = [meter.load(Counted(float(at), pending=4.0)) for at in range(4)]
    assert [load.queue_seconds for load in loads] == [0.0, 1.0, 2.0, 3.0]


def test_what_waits_counts_by_the_rate_of_answers() -> None:
    meter = LoadMeter()
    for at in range(10):
        load = meter.load(Counted(float(at), answered=at * 100.0, pending=20.0))
    assert load.queue_seconds == pytest.approx(0.2)


def test_load_is_read_from_a_metrics_page() -> None:
    page = """
nv_inference_request_success{model="a",version="1"} 7
nv_inference_request_success{model="b",version="1"} 5
nv_inference_queue_duration_us{model="a",version="1"} 3000000
nv_inference_pending_request_count{model="a",version="1"} 2
penstock_llm_cache_config_info{block_size="16",num_gpu_blocks="100",model="b",version="1"} 1
penstock_llm_kv_cache_usage{model="b",version="1"} 0.25
penstock_llm_queued_tokens{model="b",version="1"} 30
"""
    assert metrics_of_page(4.0, page) == Counted(4.0, 12.0, 3.0, 2.0, 430.0)


# -- which come and go ---------------------------------------------------------------------------


class _Cluster:
    """Plays what a replica set asks for, in seconds that are counted."""

    def __init__(self, replicas: ReplicaSet, nodes: Sequence[str] = ("a", "b")) -> None:
        self.set = replicas
        self.now = 0.0
        self.nodes = nodes
        self.avoided: list[frozenset[str]] = []
        self.stopped: list[Stop] = []

    def turn(self, seconds: float = 1.0) -> None:
        self.now += seconds
        for action in self.set.actions(self.now, self.nodes):
            if isinstance(action, Start):
                self.avoided.append(action.avoid)
            else:
                self.stopped.append(action)

    def serve(self, node: str = "a") -> None:
        """All that have been started are ready."""
        for number, replica in enumerate(self.set.replicas.values()):
            if replica.state is State.STARTING:
                address = Address(node, "127.0.0.1", 1000 + number, 2000 + number, 3000 + number)
                self.set.ready(replica.name, address, {}, self.now)

    def exit(self) -> None:
        """All that were told to exit have done so."""
        for stop in self.stopped:
            self.set.stopped(stop.name)

    def settle(self, turns: int = 40) -> None:
        for _ in range(turns):
            self.turn()
            self.serve()
            self.exit()

    def states(self) -> list[State]:
        return [replica.state for replica in self.set.replicas.values()]


_READY = State.READY


def test_one_that_goes_is_unready_then_removed_then_ended() -> None:
    cluster = _Cluster(ReplicaSet(2, Pace(drain_seconds=3, removed_seconds=2)))
    cluster.settle(2)
    cluster.set.wanted = 1
    seen = []
    for _ in range(7):
        cluster.turn()
        seen.append(([each.draining for each in cluster.set.endpoints()], len(cluster.stopped)))
    assert seen == [
        *[([False, True], 0)] * 3,
        *[([False], 0)] * 2,
        *[([False], 1)] * 2,
    ]
    assert cluster.stopped == [Stop("replica-2")]


def test_update_replaces_one_after_the_other() -> None:
    cluster = _Cluster(ReplicaSet(3))
    cluster.settle(2)
    cluster.set.renew()
    least, most = 3, 3
    for _ in range(60):
        cluster.turn()
        states = cluster.states()
        serving = states.count(_READY)
        least, most = min(least, serving), max(most, serving + states.count(State.STARTING))
        cluster.serve()
        cluster.exit()
    assert [each.generation for each in cluster.set.replicas.values()] == [2, 2, 2]
    assert (least, cluster.states()) == (3, [_READY] * 3)
    assert most == 4


def test_update_without_room_takes_one_away_first() -> None:
    cluster = _Cluster(ReplicaSet(2, Pace(surge=0)))
    cluster.settle(2)
    cluster.set.renew()
    least = 2
    for _ in range(60):
        cluster.turn()
        least = min(least, len(cluster.set.serving()))
        cluster.serve()
        cluster.exit()
    assert [each.generation for each in cluster.set.replicas.values()] == [2, 2]
    assert least == 1


def test_update_that_does_not_start_leaves_the_old_ones() -> None:
    cluster = _Cluster(ReplicaSet(2))
    cluster.settle(2)
    cluster.set.renew()
    for _ in range(100):
        cluster.turn()
        for replica in list(cluster.set.replicas.values()):
            if replica.state is State.STARTING:
                cluster.set.failed(replica.name, "a", "no such model", cluster.now)
    assert [each.generation for each in cluster.set.serving()] == [1, 1]
    assert "no such model" in cluster.set.last_failure
    assert len(cluster.avoided) < 15  # each after a longer wait


def test_node_where_replicas_do_not_start_is_avoided_for_a_while() -> None:
    cluster = _Cluster(ReplicaSet(1))
    cluster.turn()
    cluster.set.failed("replica-1", "b", "no such folder", cluster.now)
    cluster.turn(2.0)
    assert cluster.avoided == [frozenset(), {"b"}]
    cluster.set.lost("replica-2", "its node is gone", cluster.now)
    cluster.turn(100.0)
    assert cluster.avoided[-1] == frozenset()


def test_no_node_is_avoided_where_all_would_be() -> None:
    cluster = _Cluster(ReplicaSet(1), ["b"])
    cluster.turn()
    cluster.set.failed("replica-1", "b", "no such folder", cluster.now)
    cluster.turn(2.0)
    assert cluster.avoided == [frozenset(), frozenset()]


def test_one_that_is_not_ready_in_time_is_ended() -> None:
    cluster = _Cluster(ReplicaSet(1, Pace(start_seconds=10)))
    cluster.turn()
    cluster.turn(11.0)
    assert cluster.stopped == [Stop("replica-1", at_once=True)]
    assert "not ready in time" in cluster.set.last_failure


def test_adopted_replicas_count_and_names_go_on() -> None:
    cluster = _Cluster(ReplicaSet(2))
    cluster.set.adopt("replica-7", 1, 0.0)
    cluster.turn()
    assert [*cluster.set.replicas] == ["replica-7", "replica-8"]


def test_adopted_replica_of_a_later_update_is_not_an_old_one() -> None:
    cluster = _Cluster(ReplicaSet(1))
    cluster.set.adopt("replica-7", 3, 0.0)
    cluster.serve()
    cluster.turn()
    assert (cluster.set.generation, cluster.states()) == (3, [_READY])


def test_replica_lacks_what_it_refused_until_it_has_made_it() -> None:
    cluster = _Cluster(ReplicaSet(1))
    cluster.settle(2)
    for change, reason in (("load a", "too large"), ("load b", "no such model"), ("load a", None)):
        cluster.set.changed("replica-1", change, reason)
    assert cluster.set.replicas["replica-1"].lacks == {"load b": "no such model"}


_EVENTS = st.sampled_from(["turn", "serve", "exit", "lose", "fail", "renew", "more", "fewer"])


@given(st.lists(_EVENTS, max_size=60), st.sampled_from([0, 1, 2]))
def test_whatever_happens_all_replicas_wanted_serve_in_the_end(
    events: Sequence[str], surge: int
) -> None:
    cluster = _Cluster(ReplicaSet(2, Pace(surge=surge)))
    for event in events:
        before = len(cluster.set.serving())
        _play(cluster, event)
        if event == "turn" and surge:
            # Nothing that serves is taken away where fewer than wanted would be left.
            assert len(cluster.set.serving()) >= min(before, cluster.set.wanted)
    cluster.settle(200)
    generations = [each.generation for each in cluster.set.replicas.values()]
    assert cluster.states() == [_READY] * cluster.set.wanted
    assert generations == [cluster.set.generation] * cluster.set.wanted


def _play(cluster: _Cluster, event: str) -> None:
    replicas = list(cluster.set.replicas.values())
    if event in ("turn", "serve", "exit"):
        getattr(cluster, event)()
    elif event == "renew":
        cluster.set.renew()
    elif event in ("more", "fewer"):
        cluster.set.wanted = max(1, cluster.set.wanted + (1 if event == "more" else -1))
    elif replicas and event == "lose":
        cluster.set.lost(replicas[0].name, "killed", cluster.now)
    elif event == "fail":
        for replica in replicas:
            if replica.state is State.STARTING:
                cluster.set.failed(replica.name, "a", "refused", cluster.now)


# -- what proxies read ---------------------------------------------------------------------------

_TWO = [
    Endpoint("replica-2", "10.0.0.2", 4001, 4000, ("b", "a")),
    Endpoint("replica-1", "10.0.0.1", 3001, 3000, (), draining=True),
]


def test_endpoints_are_what_envoy_takes() -> None:
    assert assignment("grpc", _TWO)["resources"] == [
        {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "grpc",
            "endpoints": [
                {
                    "lb_endpoints": [
                        _endpoint("replica-1", "10.0.0.1", 3001, "DRAINING", []),
                        _endpoint("replica-2", "10.0.0.2", 4001, "HEALTHY", ["a", "b"]),
                    ]
                }
            ],
        }
    ]


def _endpoint(name: str, host: str, port: int, health: str, models: list[str]) -> object:
    return {
        "endpoint": {
            "address": {"socket_address": {"address": host, "port_value": port}},
            "hostname": name,
        },
        "health_status": health,
        "metadata": {"filter_metadata": {"envoy.lb": {"model": models}}},
    }


def test_version_is_that_of_the_contents() -> None:
    assert assignment("http", _TWO) == assignment("http", _TWO[::-1])
    assert assignment("http", _TWO)["version_info"] != assignment("http", _TWO[:1])["version_info"]


def test_files_are_moved_into_place_when_they_say_something_else(tmp_path: Path) -> None:
    files = EndpointFiles(tmp_path / "endpoints")
    assert [files.write(_TWO), files.write(list(_TWO)), files.write(_TWO[:1])] == [
        True,
        False,
        True,
    ]
    written = sorted(path.name for path in (tmp_path / "endpoints").iterdir())
    assert written == sorted(f"{protocol}.json" for protocol in PROTOCOLS)
    found = json.loads((tmp_path / "endpoints" / "http.json").read_text())
    assert found == assignment("http", _TWO[:1])


# -- what is replayed ----------------------------------------------------------------------------


def _load(model: str) -> Change:
    return Change("load", pb.RepositoryModelLoadRequest(model_name=model).SerializeToString())


def _unload(model: str) -> Change:
    return Change("unload", pb.RepositoryModelUnloadRequest(model_name=model).SerializeToString())


def _alias(name: str, model: str) -> Change:
    request = releases.AliasSetRequest(name=name)
    request.definition.targets.add(model=model, weight=100)
    return Change("alias", request.SerializeToString())


def _remove(name: str) -> Change:
    return Change("remove_alias", releases.AliasRemoveRequest(name=name).SerializeToString())


class _Server:
    """Models and aliases by Penstock's rules: an alias needs its model, and a name of its own."""

    def __init__(self, models: Sequence[str] = ()) -> None:
        self.models = {*models}
        self.aliases: dict[str, str] = {}

    async def apply(self, change: Change) -> None:
        name = change.subject[1]
        if change.kind == "load":
            if name in self.aliases:
                raise NotAppliedError("an alias has this name")
            self.models.add(name)
        elif change.kind == "alias":
            target = change.request.definition.targets[0].model
            if target not in self.models or name in self.models:
                raise NotAppliedError("no such model")
            self.aliases[name] = target
        elif name not in (self.models if change.kind == "unload" else self.aliases):
            raise NotAppliedError("not found", "NOT_FOUND")
        elif change.kind == "unload":
            self.models.remove(name)
        else:
            del self.aliases[name]


_NAMES = st.sampled_from("abc")
_CHANGES = st.one_of(
    st.builds(_load, _NAMES),
    st.builds(_unload, _NAMES),
    st.builds(_alias, _NAMES, _NAMES),
    st.builds(_remove, _NAMES),
)


@given(st.lists(_CHANGES, max_size=30), st.sets(_NAMES))
def test_a_new_replica_comes_to_be_as_the_others(
    changes: Sequence[Change], at_the_start: set[str]
) -> None:
    async def play() -> None:
        log, old, new = ChangeLog(), _Server([*at_the_start]), _Server([*at_the_start])
        for change in changes:
            try:
                await old.apply(change)
            except NotAppliedError:
                continue
            log.record(change)
        lacks = await replay(log.net(), new.apply)
        # An alias that outlived its model cannot be set where that never was.
        outlived = {name for name, model in old.aliases.items() if model not in old.models}
        assert {name.split()[1] for name in lacks} <= outlived
        assert new.models == old.models
        assert new.aliases.items() <= old.aliases.items()
        assert old.aliases.keys() - new.aliases.keys() <= outlived

    asyncio.run(play())


def test_log_keeps_the_last_change_of_each_name_and_can_be_saved() -> None:
    log = ChangeLog([_load("a"), _alias("x", "a"), _load("b"), _load("a"), _unload("b")])
    assert log.net() == [_alias("x", "a"), _load("a"), _unload("b")]
    assert ChangeLog.restored(json.loads(json.dumps(log.saved()))).net() == log.net()


def test_a_replica_makes_again_nothing_that_a_broadcast_has_brought() -> None:
    kept, made = NumberedChanges(), MadeChanges()

    def catch_up() -> list[Change]:
        made.number, changes = kept.since(made.number)
        return [*made.lacking(changes)]

    kept.record(_load("a"), "before")
    assert catch_up() == [_load("a")]
    made.add(_load("b"), "here")
    kept.record(_load("b"), "here")
    assert catch_up() == []
    kept.record(_load("b"), "elsewhere")  # the same once more, which has not come here
    kept.record(_unload("c"), "elsewhere")
    assert catch_up() == [_load("b"), _unload("c")]
    assert catch_up() == []


def test_a_change_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="load, unload, alias, remove_alias, not promote"):
        Change("promote", b"")


# -- a replica's server --------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--grpc-port=1", "--http-address=::", "--grpc-use-ssl=true"])
def test_flags_of_what_a_replica_chooses_are_refused_by_name(flag: str) -> None:
    assert refused(["--model-repository=/m", flag]).startswith(flag.partition("=")[0])
    with pytest.raises(ValueError, match=flag.partition("=")[0]):
        ServerProcess([flag])


async def test_long_line_of_a_server_is_left_out(tmp_path: Path) -> None:
    """It does not fill the pipe, and what is printed behind it is read."""
    program = tmp_path / "program"
    lines = "head -c 200000 /dev/zero; echo; echo 'error: no models'; exit 1"
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o700)
    with pytest.raises(StartError, match=r"^error: no models$"):
        await ServerProcess([], python=str(program)).start()


@pytest.mark.slow
async def test_server_that_does_not_let_itself_be_asked_has_not_started(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\ncallers = ["anyone"]\ncalls = ["inference"]\n')
    models = write_client_models(tmp_path / "models")
    explicit = "--model-control-mode=explicit"
    server = ServerProcess([f"--model-repository={models}", explicit, f"--access-policy={policy}"])
    with pytest.raises(StartError, match="does not say whether it is ready"):
        await server.start()


@pytest.mark.slow
async def test_server_of_a_replica_serves_tells_changes_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's proxy is for others."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    models = write_client_models(tmp_path)
    server = ServerProcess([f"--model-repository={models}", "--model-control-mode=explicit"])
    address = await server.start()
    try:
        assert (await server.report()).models == ()
        assert await replay([_alias("x", "copy"), _load("copy")], server.apply) == {}
        assert await server.is_ready()
        assert (await server.report()).models == ("copy", "x")
        with pytest.raises(NotAppliedError, match="nothing"):
            await server.apply(_load("nothing"))
        assert await replay([_unload("copy"), _remove("other")], server.apply) == {}
    finally:
        await server.stop(20.0)
    assert min(address.grpc, address.http, address.metrics) > 0
    with pytest.raises(GoneError):
        await server.report()


@pytest.mark.slow
async def test_server_without_its_models_says_where_and_why_it_did_not_start(
    tmp_path: Path,
) -> None:
    server = ServerProcess([f"--model-repository={tmp_path / 'missing'}"], node="node-7")
    with pytest.raises(StartError, match="missing") as raised:
        await server.start()
    assert raised.value.node == "node-7"
