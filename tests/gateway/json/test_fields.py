"""Numbers of requests at the ends of what their types hold."""

from __future__ import annotations

import pytest

from penstock.core.errors import InternalError
from penstock.gateway.json.fields import as_parameter, as_unsigned


@pytest.mark.parametrize("number", [0, (1 << 64) - 1])
def test_unsigned_number_has_64_bits(number: int) -> None:
    assert as_unsigned(number) == number


@pytest.mark.parametrize("number", [-1, 1 << 64, True, 1.0])
def test_what_is_no_unsigned_number_is_refused(number: object) -> None:
    with pytest.raises(InternalError, match="non-unsigned-integer as unsigned-integer"):
        as_unsigned(number)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ((1 << 63) - 1, int),
        (-(1 << 63), int),
        (1 << 63, float),
        (-(1 << 63) - 1, float),
    ],
)
def test_parameter_beyond_64_bits_is_a_double(number: int, kind: type) -> None:
    value = as_parameter("p", number)
    assert type(value) is kind
    assert value == kind(number)
