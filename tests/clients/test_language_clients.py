"""The client examples of some languages, with and without TLS. `make test-clients` runs all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from clients.languages import EXAMPLES, FEATURES, Example, ExampleError, Server, servers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with servers(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.mark.contract("CC-11")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.language)
def test_a_client_shows_every_feature(both: tuple[Server, Server], example: Example) -> None:
    """Both cancelled generations have to end in the server, too."""
    _build(example)
    assert [example.ask(server) for server in both] == [list(FEATURES)] * 2


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.language)
def test_without_a_server_a_client_ends_in_a_line(example: Example) -> None:
    """The models that it asks for, then which call failed, and why: no trace of the stack."""
    _build(example)
    with pytest.raises(ExampleError) as ended:
        example.start("localhost:1")
    _, wanted, told = str(ended.value).splitlines()
    assert "--model-repository=clients/models" in wanted
    assert "unary: " in told
    assert "refused" in told.lower()


def _build(example: Example) -> None:
    if example.unguarded:
        pytest.skip(f"{example.language} is left to `make test-clients`: {example.unguarded}")
    if what := example.missing():
        pytest.skip(f"{what} is not installed; {example.language} needs {example.install}")
    if why := example.unreachable():
        pytest.skip(f"packages of {example.language} cannot be fetched: {why}")
    example.build()


def test_what_is_not_installed_is_named() -> None:
    assert Example("Cobol", "cobol", ("python3", "cobc-of-1959")).missing() == "cobc-of-1959"
    assert Example("Python", "python", ("python3",)).missing() == ""
    if shutil.which("pkg-config") is None:
        pytest.skip("libraries: pkg-config is not installed")
    unknown = Example("Cobol", "cobol", libraries=("cobol-of-1959",))
    assert unknown.missing() == "the library cobol-of-1959"
