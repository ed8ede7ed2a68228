"""What serves the examples of Triton's Python backend, on examples of the tests' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients import upstream, upstream_models
from clients.upstream_models import Example, Model

pytestmark = pytest.mark.slow

_MODEL = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def execute(self, requests):
        return []
"""
_EXAMPLE = Example("some/client.py", (Model("some", "some/model.py"),))


@pytest.mark.parametrize(
    ("model", "client", "verdict"),
    [
        (_MODEL, "print('PASS')", upstream.PASSED),
        (_MODEL, "raise SystemExit(1)", upstream.FAILED),
        (f"import not_there\n{_MODEL}", "raise SystemExit(1)", "not_there is not installed"),
    ],
)
def test_verdicts(tmp_path: Path, model: str, client: str, verdict: str) -> None:
    folder = tmp_path / "examples" / "some"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(model)
    (folder / "client.py").write_text(client)
    place = tmp_path / "place"
    place.mkdir()
    result = upstream_models.perform(_EXAMPLE, folder.parent, place, ())
    assert result.verdict == verdict


def test_a_folder_without_examples_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        upstream_models.main([str(tmp_path)])
    assert "no examples of Triton's" in capsys.readouterr().err
