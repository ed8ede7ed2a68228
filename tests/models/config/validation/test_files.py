"""Files that a configuration names lie in the model's folder."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured
from penstock.core.errors import ConfigError
from penstock.models.config.validation import validate_polled

_OUTPUT = {"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}


def _named(field: str, name: str) -> dict[str, Any]:
    """A configuration in which `field` is the name of a file."""
    tensor = {"data_type": "TYPE_FP32", "dims": [1], field: name}
    fields: dict[str, dict[str, Any]] = {
        "default_model_filename": {field: name},
        "cc_model_filenames": {field: {"8.0": name}},
        "label_filename": {"output": [{**_OUTPUT, field: name}]},
        "input_data_file": {"model_warmup": [{"name": "w", "inputs": {"IN": tensor}}]},
        "data_file": {
            "sequence_batching": {
                "state": [
                    {
                        "input_name": "S",
                        "output_name": "S2",
                        "data_type": "TYPE_FP32",
                        "dims": [1],
                        "initial_state": [{"name": "first", **tensor}],
                    }
                ]
            }
        },
    }
    return fields[field]


_FIELDS = (
    "default_model_filename",
    "cc_model_filenames",
    "label_filename",
    "input_data_file",
    "data_file",
)


@pytest.mark.parametrize("field", _FIELDS)
@pytest.mark.parametrize("name", ["/etc/passwd", "../../x", "a/../../../x", "../..", "a\0b"])
def test_a_name_that_leads_out_is_refused(field: str, name: str) -> None:
    with pytest.raises(ConfigError, match="must stay within the model directory") as refused:
        validate_polled(configured(**_named(field, name)))
    assert refused.value.message.startswith(f"{field} '{name}' of model 'm'")


@pytest.mark.parametrize("field", _FIELDS)
@pytest.mark.parametrize("name", ["a.txt", "b/../a.txt", "b/a.txt", "..a", "a..b"])
def test_a_name_inside_is_taken(field: str, name: str) -> None:
    with raises_nothing():
        validate_polled(configured(**_named(field, name)))


@pytest.mark.parametrize("field", _FIELDS)
@pytest.mark.parametrize("name", ["a" * 256, "a\nb", "a\\b", "a/" * 600 + "a"])
def test_a_name_that_is_no_path_is_refused(field: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} '.*' of model 'm' is no path: "):
        validate_polled(configured(**_named(field, name)))
