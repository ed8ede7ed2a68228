"""What clients and operators see of models that calls load."""

from __future__ import annotations

import json

from models.residency.repository import Repository
from models.residency.test_demand import Start, repository, start  # noqa: F401 - fixtures

_SPEAKER = """backend: "python"
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


def test_an_explanation_tells_how_long_a_request_waited_for_the_load(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain")
    repository.add_ensemble("pipe", "plain", "plain")
    told = []
    with start() as server:
        body = {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [0]}]}
        for _ in range(2):
            _, _, headers = server.post(
                "/v2/models/pipe/infer", body, headers={"penstock-explain": "1"}
            )
            told.append(json.loads(headers["penstock-explain"]))
        page = server.page("application/openmetrics-text")
    assert told[0]["waited_for_load_us"] > 1000
    assert told[0]["waited_for_load_us"] <= told[0]["total_us"]
    assert "waited_for_load_us" not in told[1]
    waits = [line for line in page.splitlines() if "load_wait_seconds_bucket" in line]
    assert any(told[0]["trace_id"] in line for line in waits)


def test_openais_list_has_models_that_are_not_loaded(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("plain")
    repository.write("speaks", _SPEAKER, "import nothing_that_there_is")
    with start() as server:
        status, text, _ = server.get("/v1/models")
        assert (status, [one["id"] for one in json.loads(text)["data"]]) == (200, ["speaks"])
        assert repository.loads() == []
