"""`TenantAccounts`: usage by tenant of a model whose requests are not queued by fair share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.core.request import RequestScope
from penstock.scheduling.tokens.fair_share import FairShare, TenantUsage
from penstock.scheduling.tokens.tenants import ANONYMOUS, FairnessPolicy


class TenantAccounts:
    """Counts requests by their senders, and the tokens that are reported of them."""

    def __init__(self, policy: FairnessPolicy) -> None:
        self._share = FairShare(policy)

    def follow(self, scope: RequestScope) -> None:
        """Count a request, and have its tokens reported here."""
        sender = scope.sender
        tenant = self._share.tenant(ANONYMOUS if sender is None else sender.tenant)
        tenant.usage.requests += 1
        scope.report_usage = _Account(tenant.usage).report

    def metrics(self) -> Mapping[str, float]:
        """Counters by name, with their labels."""
        return {
            name: count
            for tenant, usage in self._share.usages.items()
            for name, count in usage_metrics(tenant, usage)
        }


class _Account:
    """The tokens of one request, which reports grow, as its tenant's usage."""

    __slots__ = ("_cached", "_generated", "_prompt", "_usage")

    def __init__(self, usage: TenantUsage) -> None:
        self._usage = usage
        self._prompt = self._cached = self._generated = 0

    def report(self, prompt: int, cached: int, generated: int) -> None:
        usage = self._usage
        usage.prompt_tokens += prompt - self._prompt
        usage.cached_tokens += cached - self._cached
        usage.generated_tokens += generated - self._generated
        self._prompt, self._cached, self._generated = prompt, cached, generated


def usage_metrics(tenant: str, usage: TenantUsage) -> Iterator[tuple[str, float]]:
    """The counters of a tenant, by metric name with its label."""
    counters = {
        "requests": usage.requests,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "generated_tokens": usage.generated_tokens,
    }
    for name, count in counters.items():
        yield f'penstock_llm_tenant_{name}_total{{tenant="{tenant}"}}', count
