"""The examples in Python, against servers with and without TLS. `make test-clients` runs all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.languages import EXAMPLES, FEATURES, Example, Server, servers

_PYTHON = [example for example in EXAMPLES if example.folder == "python"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    _PYTHON[0].build()
    with servers(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.mark.contract("CC-11")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("example", _PYTHON, ids=lambda example: example.language)
def test_a_client_shows_every_feature(
    both: tuple[Server, Server], example: Example, tls: bool
) -> None:
    """Both cancelled generations have to end in the server, too."""
    assert example.ask(both[tls]) == list(FEATURES)


def test_what_is_not_installed_is_named() -> None:
    assert Example("Cobol", "cobol", ("python3", "cobc-of-1959")).missing() == "cobc-of-1959"
    assert Example("Python", "python", ("python3",)).missing() == ""
