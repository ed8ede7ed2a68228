"""Unloading an ensemble with its members, by a caller who may not change all of these."""

from __future__ import annotations

from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from access.models import OPEN, SECRET, write_ensemble, write_models
from access.policies import ADMIN, ALICE, POLICY, bearer
from harness.serving import serving


def test_members_that_are_not_seen_stay_loaded(tmp_path: Path) -> None:
    name = f"{OPEN}-ensemble"
    repository = write_models(tmp_path / "models")
    write_ensemble(repository, name)
    (tmp_path / "policy.toml").write_text(POLICY)
    flags = ("--model-control-mode=explicit", f"--load-model={name}")
    policy = f"--access-policy={tmp_path / 'policy.toml'}"
    with (
        serving(repository, tmp_path / "log", *flags, policy) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        with pytest.raises(InferenceServerException, match="may not change models"):
            client.unload_model(name, headers=bearer(ALICE), unload_dependents=True)
        assert client.is_model_ready(SECRET, headers=bearer(ADMIN))
        client.unload_model(name, headers=bearer(ADMIN), unload_dependents=True)
        assert not client.is_model_ready(SECRET, headers=bearer(ADMIN))
