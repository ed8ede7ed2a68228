"""What clients read of a load that failed."""

from __future__ import annotations

import pytest

from penstock.core.errors import InternalError, InvalidRequestError, ModelLoadError
from penstock.models.loading.redaction import redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "no file '/tmp/penstock-7/penstock-model-a_b1/1/model.onnx'",
            "no file '1/model.onnx'",
        ),
        (
            "ValueError: x\n\nAt:\n  /tmp/penstock-model-q/1/model.py(3): initialize\n",
            "ValueError: x\n\nAt:\n  1/model.py(3): initialize\n",
        ),
        (
            "At:\n  /opt/v/lib/python3.11/site-packages/a/b.py(3)\n  /usr/lib/python3.11/c.py(1)",
            "At:\n  python3.11/site-packages/a/b.py(3)\n  python3.11/c.py(1)",
        ),
        ("in /models/m/1/model.py(3)", "in /models/m/1/model.py(3)"),
    ],
)
def test_paths_of_the_server_are_left_out(text: str, shown: str) -> None:
    assert redacted(ModelLoadError(text)).message == shown


def test_the_kind_of_error_stays() -> None:
    assert type(redacted(InternalError("/tmp/penstock-model-x/1"))) is InternalError
    assert isinstance(redacted(ModelLoadError("/tmp/penstock-model-x/1")), InvalidRequestError)
