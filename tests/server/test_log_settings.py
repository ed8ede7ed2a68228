"""Log settings that clients change, and what they may not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.server.log_control import LogValues, checked
from server.house import House


class Log:
    """Settings that remember what they were changed by."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"log_info": True}

    def current(self) -> LogValues:
        return self.values

    def change(self, values: LogValues) -> None:
        self.values |= values


async def test_settings_are_told_and_changed(house: House) -> None:
    log = Log()
    server = House(house.path, log=log).server
    assert await server.log_settings() == {"log_info": True}
    changed = await server.log_settings({"log_verbose_level": 1 << 31})
    assert changed == {"log_info": True, "log_verbose_level": 0}
    with pytest.raises(UnsupportedError) as refused:
        await house.server.log_settings()
    assert refused.value.message == "log settings are not available on this server"


def test_a_level_beyond_a_signed_integer_is_none() -> None:
    highest = (1 << 31) - 1
    assert checked({"log_verbose_level": highest}) == {"log_verbose_level": highest}
    assert checked({"log_verbose_level": highest + 1}) == {"log_verbose_level": 0}
    assert checked({"log_info": False}) == {"log_info": False}


@pytest.mark.parametrize("format", ["default", "ISO8601", "json"])
def test_formats_are_known_by_name(format: str) -> None:
    assert checked({"log_format": format}) == {"log_format": format}
    with pytest.raises(InvalidRequestError) as refused:
        checked({"log_format": format.swapcase()})
    told = f"invalid argument for log_format, got: {format.swapcase()}"
    assert refused.value.message == told


def test_the_file_stays_where_the_operator_put_it() -> None:
    with pytest.raises(UnsupportedError) as refused:
        checked({"log_file": "x"})
    told = "log file location can not be updated through network protocol"
    assert refused.value.message == told
