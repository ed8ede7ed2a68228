"""The choice between tenants, by properties and by example."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduling.tokens.fair_share import TURNS_BEFORE_LOWER, FairRequest, FairShare
from penstock.scheduling.tokens.tenants import FairnessPolicy, TenantPolicy

_PLAIN = FairnessPolicy(reserve=0.0)


def _push(share: FairShare, tenant: str, *, band: int = 0, tokens: int = 10) -> FairRequest:
    request = FairRequest(share.tenant(tenant), band, tokens, 0, 0.0)
    share.push(request)
    return request


def _finish(share: FairShare, request: FairRequest, generated: int) -> None:
    request.started, request.generated = True, generated
    share.progressed(request)
    share.ended(request, complete=True)


def _served(
    share: FairShare, rounds: int, backlog: dict[str, int], generated: int
) -> dict[str, int]:
    """Tokens by tenant, where each keeps its backlog and one request runs at a time."""
    used = dict.fromkeys(backlog, 0)
    for name, count in backlog.items():
        for _ in range(count):
            _push(share, name)
    for _ in range(rounds):
        request = share.pop(0, 0)
        assert request is not None
        _finish(share, request, generated)
        used[request.tenant.name] += 10 + generated
        _push(share, request.tenant.name)
    return used


def _jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


@given(st.integers(1, 200))
def test_tenants_with_ten_times_the_requests_get_the_same_tokens(generated: int) -> None:
    used = _served(FairShare(_PLAIN), 200, {"hog": 20, "victim": 2}, generated)
    assert _jain([float(tokens) for tokens in used.values()]) >= 0.95


@given(st.integers(2, 5))
def test_tokens_are_in_the_ratio_of_the_weights(weight: int) -> None:
    policy = FairnessPolicy({"big": TenantPolicy(weight)}, reserve=0.0)
    used = _served(FairShare(policy), 300, {"big": 5, "small": 5}, 30)
    assert abs(used["big"] / used["small"] - weight) < 0.2 * weight


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 1)), min_size=1, max_size=60))
def test_every_request_leaves_once_and_none_waits_beside_a_free_place(
    arrivals: list[tuple[str, int]],
) -> None:
    share = FairShare(_PLAIN)
    waiting = {_push(share, name, band=band) for name, band in arrivals}
    while waiting:
        request = share.pop(0, 1)
        assert request is not None
        waiting.remove(request)
        _finish(share, request, 5)
    assert share.pop(0, 1) is None
    assert share.queued == 0


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_cancelled_requests_leave_the_others_in_their_order(kept: list[bool]) -> None:
    share = FairShare(_PLAIN)
    requests = [_push(share, "one") for _ in kept]
    for request, keep in zip(requests, kept, strict=True):
        if not keep:
            share.remove(request)
    left = [share.pop(0, 0) for _ in range(sum(kept))]
    assert left == [request for request, keep in zip(requests, kept, strict=True) if keep]
    assert share.pop(0, 0) is None


def test_lower_band_has_a_turn_although_a_higher_one_always_waits() -> None:
    share = FairShare(_PLAIN)
    low = _push(share, "low", band=-1)
    turns = 0
    while True:
        _push(share, "high", band=1)
        turns += 1
        request = share.pop(0, 0)
        assert request is not None
        _finish(share, request, 1)
        if request is low:
            break
    assert turns == TURNS_BEFORE_LOWER + 1


def test_returning_tenant_has_no_credit_for_its_time_away() -> None:
    share = FairShare(_PLAIN)
    _push(share, "away")
    first = share.pop(0, 0)
    assert first is not None
    _finish(share, first, 1)
    _served(share, 50, {"busy": 3}, 100)
    assert share.tenant("away").counter < share.tenant("busy").counter - 1000
    _push(share, "away")
    assert share.tenant("away").counter == share.tenant("busy").counter


def test_burst_is_a_lead_over_the_others() -> None:
    policy = FairnessPolicy({"away": TenantPolicy(burst=500.0)}, reserve=0.0)
    share = FairShare(policy)
    _push(share, "away")
    first = share.pop(0, 0)
    assert first is not None
    _finish(share, first, 1)
    _served(share, 50, {"busy": 3}, 100)
    _push(share, "away")
    assert share.tenant("away").counter == share.tenant("busy").counter - 500.0


def test_last_place_is_kept_for_a_tenant_below_its_share() -> None:
    share = FairShare(FairnessPolicy())
    for _ in range(9):
        _push(share, "hog")
    taken = [share.pop(running, 8) for running in range(7)]
    assert None not in taken
    assert share.pop(7, 8) is None
    victim = _push(share, "victim")
    assert share.pop(7, 8) is victim
    assert share.pop(8, 8) is None


def _fill(share: FairShare, running: list[FairRequest]) -> None:
    """Hand over what an engine of 8 places is given."""
    while (request := share.pop(len(running), 8)) is not None:
        running.append(request)


def _next_hog(share: FairShare, running: list[FairRequest]) -> None:
    """The oldest request of `hog` ends, and it sends another."""
    oldest = next(one for one in running if one.tenant.name == "hog")
    running.remove(oldest)
    _finish(share, oldest, 5)
    _push(share, "hog")
    _fill(share, running)


def test_as_many_places_are_kept_as_a_small_tenant_has_had_lately() -> None:
    share = FairShare(FairnessPolicy())
    running: list[FairRequest] = []
    for _ in range(20):
        _push(share, "hog")
    _fill(share, running)
    for again in range(9):
        small = [_push(share, "small") for _ in range(2)]
        _fill(share, running)
        while not set(small) <= set(running):
            assert not again
            _next_hog(share, running)
        for request in small:
            running.remove(request)
            _finish(share, request, 5)
        _fill(share, running)
        assert len(running) <= 6
    turns = 0
    while len(running) < 7:
        _next_hog(share, running)
        turns += 1
    assert 16 < turns <= 32  # now there is the place of the policy only


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=60))
def test_no_more_than_twice_the_reserve_is_free_beside_one_that_waits(
    turns: list[tuple[str, int]],
) -> None:
    """Tenants come with some requests, and each time the oldest that runs ends."""
    share = FairShare(FairnessPolicy())
    running: list[FairRequest] = []
    for name, requests in turns:
        for _ in range(requests):
            _push(share, name)
        _fill(share, running)
        assert len(running) <= 8
        assert not share.queued or len(running) >= 6
        if running:
            _finish(share, running.pop(0), 5)


def test_request_that_never_started_costs_nothing() -> None:
    share = FairShare(_PLAIN)
    request = _push(share, "one")
    before = share.tenant("one").counter
    assert share.pop(0, 0) is request
    assert share.tenant("one").counter > before
    share.ended(request, complete=False)
    assert share.tenant("one").counter == before


def test_tenants_beyond_a_hundred_share_a_label() -> None:
    share = FairShare(_PLAIN)
    for number in range(150):
        share.tenant(f"t{number}")
    assert len(share.usages) == FairShare.MOST_LABELS + 1
    assert share.tenant("t149").usage is share.usages["other"]
    assert (share.tenant("t99").label, share.tenant("t149").label) == ("t99", "other")


def test_tenants_whose_names_are_written_alike_share_a_label() -> None:
    share = FairShare(FairnessPolicy({"a b": TenantPolicy()}))
    assert [share.tenant(name).label for name in ("a b", 'a"b', "a_b", "ä\n")] == [
        "a b",
        "a_b",
        "a_b",
        "ä_",
    ]
    assert share.tenant('a"b').usage is share.tenant("a_b").usage
    assert share.tenant('a"b') is not share.tenant("a_b")
