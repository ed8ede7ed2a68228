"""Model control on Triton's example repository, as its examples try it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from harness.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.contract("CC-12")]


def test_a_model_is_loaded_changed_and_unloaded(repositories: Path, tmp_path: Path) -> None:
    with (
        serving(
            repositories / "model_repository",
            tmp_path / "log",
            "--model-control-mode=explicit",
            "--allow-model-upload=true",
        ) as server,
        grpcclient.InferenceServerClient(server.grpc) as client,
    ):
        assert len(client.get_model_repository_index().models) == 8
        client.load_model("simple")
        assert client.is_model_ready("simple")
        client.load_model("simple", config='{"max_batch_size":"16"}')
        assert client.get_model_config("simple").config.max_batch_size == 16
        client.unload_model("simple")
        assert not client.is_model_ready("simple")
        with pytest.raises(InferenceServerException, match="failed to load"):
            client.load_model("wrong_model_name")
        with pytest.raises(InferenceServerException, match="Invalid file path"):
            client.load_model("simple", config="{}", files={"file:" + "A" * 256: b"a"})
        assert client.is_server_live()
