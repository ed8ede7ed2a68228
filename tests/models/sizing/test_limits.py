"""What a memory budget grants of each device."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.models.sizing.limits import budget_limits

_GPUS = {0: 1000, 1: 2000}


def test_a_budget_is_in_bytes_or_shares_of_what_each_device_has() -> None:
    assert budget_limits({"": 7}, 100, _GPUS) == 7
    assert budget_limits({"host": 0.5}, 100, _GPUS) == {"host": 50}
    assert budget_limits({"gpu1": 20, "gpu": 0.9}, 100, _GPUS) == {"gpu0": 900, "gpu1": 20}


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"gpu2": 5}, "there is no gpu2, but host, gpu0, gpu1"), ({"gpu0": 0.5}, "must be bytes")],
)
def test_what_is_not_there_or_not_known_is_refused(budget: dict[str, float], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        budget_limits(budget, 100, {0: 0, 1: 0})
