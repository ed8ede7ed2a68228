"""Accounts of tenants: what reports of growing counts come to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request import RequestScope, Sender
from penstock.scheduling.tokens.tenant_accounts import TenantAccounts
from penstock.scheduling.tokens.tenants import FairnessPolicy


def name(counter: str, tenant: str) -> str:
    return f'penstock_llm_tenant_{counter}_total{{tenant="{tenant}"}}'


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=5), st.integers(1, 3))
def test_the_last_report_of_a_request_is_its_usage(
    growth: list[tuple[int, int, int]], requests: int
) -> None:
    accounts = TenantAccounts(FairnessPolicy())
    totals = [0, 0, 0]
    for _ in range(requests):
        scope = RequestScope(sender=Sender("red"))
        accounts.follow(scope)
        so_far = [0, 0, 0]
        for more in growth:
            so_far = [a + b for a, b in zip(so_far, more, strict=True)]
            assert scope.report_usage is not None
            scope.report_usage(*so_far)
        totals = [a + b for a, b in zip(totals, so_far, strict=True)]
    told = accounts.metrics()
    counters = ("prompt_tokens", "cached_tokens", "generated_tokens")
    assert [told[name(one, "red")] for one in counters] == totals
    assert told[name("requests", "red")] == requests


def test_requests_without_a_sender_are_of_nobody() -> None:
    accounts = TenantAccounts(FairnessPolicy())
    accounts.follow(RequestScope())
    assert accounts.metrics()[name("requests", "anonymous")] == 1
