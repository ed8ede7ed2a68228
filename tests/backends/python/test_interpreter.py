"""Which Python runs the processes of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import model_config
from penstock_backends.python.backend import PythonBackend


@pytest.mark.parametrize(
    ("settings", "python"), [({}, None), ({"python": "/x/python"}, "/x/python")]
)
async def test_without_an_environment_it_is_that_of_the_settings(
    tmp_path: Path, settings: dict[str, str], python: str | None
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    found = await PythonBackend.interpreter(model_config(), tmp_path / "m" / "1", settings)
    assert found == python
