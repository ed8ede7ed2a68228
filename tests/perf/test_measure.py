"""A measurement whose beginning and end are seen late: what lies between them."""

from __future__ import annotations

import time

from harness.serving import Served, wait_until
from penstock_client.perf.load.plan import Limits, Point
from penstock_client.perf.measure import Progress, measure
from penstock_client.perf.options import RequestOptions, Target
from penstock_client.perf.server_side import Observer, server_side
from penstock_client.perf.traffic import traffic_for
from penstock_client.perf.wire.endpoint import Endpoint


def test_a_load_that_is_over_when_its_warm_up_is_looked_at_counts_as_a_whole(
    served: Served,
) -> None:
    """Nothing is said of the server, whose counters at the beginning nobody has read."""

    def too_late(progress: Progress) -> None:
        end = time.perf_counter() + progress.of - progress.seconds
        wait_until(lambda: time.perf_counter() >= end)

    target = Target(Endpoint("127.0.0.1", served.ports["grpc"]))
    limits = Limits(duration=0.1, warmup=0.25)  # the first news come before its end
    with traffic_for(target, RequestOptions("identity")) as traffic:
        measured = measure(traffic, Point(concurrency=1), limits, Observer(), too_late)
    assert measured.end - measured.begin > 0.25
    assert server_side(measured.before, measured.after, 1) == {"models": []}
