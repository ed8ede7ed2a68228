"""Stand-ins at the seams: backends, instances, a version builder; and values as tests need them."""

from fakes.backends import FakeBackend, InstallBackend, Script, Tokens, by_id
from fakes.builder import FakeBuilder, write_model
from fakes.instances import FakeInstance, execute, make_model
from fakes.log import KeptLog
from fakes.loops import in_virtual_time, occupy, turns, until
from fakes.values import (
    answer,
    make_inference,
    make_request,
    make_response,
    mark,
    marks,
    model_config,
    sent,
)

__all__ = [
    "FakeBackend",
    "FakeBuilder",
    "FakeInstance",
    "InstallBackend",
    "KeptLog",
    "Script",
    "Tokens",
    "answer",
    "by_id",
    "execute",
    "in_virtual_time",
    "make_inference",
    "make_model",
    "make_request",
    "make_response",
    "mark",
    "marks",
    "model_config",
    "occupy",
    "sent",
    "turns",
    "until",
    "write_model",
]
