"""Files of variants: what a change of settings makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_client.tune.errors import VariantError
from penstock_client.tune.model_files import read_files


@pytest.mark.parametrize("name", ["instance_group.count", "name.first", "input.dims", "no_field"])
def test_a_setting_that_is_not_there_fails_its_variant_alone(models: Path, name: str) -> None:
    files = read_files(models / "sleepy")
    with pytest.raises(VariantError, match="not a configuration"):
        files.config_text({name: 2})
