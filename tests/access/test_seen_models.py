"""What frontends have of the server behind a policy: nothing that nobody has looked at."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest

from penstock.access.current import SERVER_ITSELF, acting_as, current_caller
from penstock.core.errors import NotFoundError
from penstock.server import faces
from penstock.server.seen_models import OF_NO_MODEL, SeenModels
from penstock.server.server import InferenceServer

OF_MODELS = {name for name in vars(SeenModels) if not name.startswith("_")}
FACES = (faces.Inference, faces.Views, faces.Repository, faces.Control)
NAMES_OF_MODELS = {"name", "model", "request"}


class Server:
    """Has every model, and says so."""

    regions = tenants = tracer = audit = None

    def find(self, name: str, version: str) -> str:
        return name

    def unknown_model(self, name: str, version: str) -> NotFoundError:
        return NotFoundError(name)


def test_every_operation_of_a_face_is_one_of_models_or_of_none() -> None:
    named = {name for face in FACES for name in vars(face) if not name.startswith("_")}
    assert named <= OF_MODELS | OF_NO_MODEL
    assert not OF_MODELS & OF_NO_MODEL


@pytest.mark.parametrize("name", sorted(OF_NO_MODEL))
def test_what_is_passed_on_takes_no_name_of_a_model(name: str) -> None:
    operation = getattr(InferenceServer, name, None)
    taken = inspect.signature(operation).parameters if inspect.isfunction(operation) else {}
    assert not NAMES_OF_MODELS & {*taken}


def test_nothing_else_is_there() -> None:
    with pytest.raises(AttributeError):
        cast(Any, SeenModels(cast(InferenceServer, Server()))).snapshot()


def test_without_a_caller_nothing_is_seen() -> None:
    seen = SeenModels(cast(InferenceServer, Server()))
    with pytest.raises(NotFoundError):
        seen.find("m", "")
    with acting_as(SERVER_ITSELF):
        assert cast(Any, seen.find("m", "")) == "m"
    assert current_caller() == ""
    with pytest.raises(NotFoundError):
        seen.find("m", "")
