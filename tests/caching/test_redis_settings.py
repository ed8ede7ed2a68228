"""Options of the Redis cache from command line and environment."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.caching.redis_settings import RedisSettings
from penstock.core.errors import ConfigError

pytestmark = pytest.mark.contract("RC-07")

PLACE = {"host": "h", "port": "6379"}


def _of(**given: str) -> RedisSettings:
    return RedisSettings.from_options({**PLACE, **given}, {})


def test_options_have_the_defaults_of_the_real_server() -> None:
    assert _of() == RedisSettings(
        host="h",
        port=6379,
        user="default",
        password="",
        db=0,
        connect_timeout=0,
        socket_timeout=0,
        pool_size=1,
        wait_timeout=1000,
        tls_enabled=False,
    )


def test_values_have_the_types_of_their_fields() -> None:
    settings = _of(pool_size="4", tls_enabled="true", sni="redis.example")
    assert (settings.pool_size, settings.tls_enabled, settings.sni) == (4, True, "redis.example")


@pytest.mark.contract("EV-07")
def test_user_and_password_may_come_from_the_environment() -> None:
    environment = {"TRITONCACHE_REDIS_USERNAME": "u", "TRITONCACHE_REDIS_PASSWORD": "p"}
    settings = RedisSettings.from_options(PLACE, environment)
    assert (settings.user, settings.password) == ("u", "p")
    assert RedisSettings.from_options({**PLACE, "user": "other"}, environment).user == "other"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"port": "1"}, "the redis cache needs the setting 'host'"),
        ({"host": "h"}, "the redis cache needs the setting 'port'"),
        ({**PLACE, "prot": "1"}, "unknown setting 'prot' of the redis cache"),
        ({**PLACE, "port": "x"}, "'port' must be a whole number, got 'x'"),
        ({**PLACE, "tls_enabled": "maybe"}, "'tls_enabled' must be true or false, got 'maybe'"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_name(given: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RedisSettings.from_options(given, {})
