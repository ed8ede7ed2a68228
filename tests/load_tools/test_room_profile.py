"""Names of compiled functions, and whose a sample is."""

from __future__ import annotations

import pytest
from loadtest.room_profile import NOWHERE, Rooms, read_stacks

_ROOMS = Rooms(["penstock.rpc.servicer", "penstock.http1.connection", "penstock.http2.connection"])


@pytest.mark.parametrize(
    ("function", "module"),
    [
        ("CPyDef_servicer___InferenceServicer___ModelInfer", "penstock.rpc.servicer"),
        ("CPyPy_http2___connection___Connection___receive", "penstock.http2.connection"),
        ("CPyDef_http1___connection___Connection___receive", "penstock.http1.connection"),
        ("CPyDef_connection___Connection___receive", None),  # of which, nobody can say
        ("CPyDict_GetItem", None),
        ("_PyEval_EvalFrameDefault", None),
    ],
)
def test_a_function_belongs_to_the_module_its_name_begins_with(
    function: str, module: str | None
) -> None:
    assert _ROOMS.module(function) == module


def test_a_sample_is_that_of_the_innermost_function_of_ours() -> None:
    inner, outer = "CPyDef_servicer___f", "CPyDef_http2___connection___g"
    stacks = [["malloc", inner, "_PyEval_Vector", outer], [outer, "main"], ["epoll_wait", "main"]]
    assert _ROOMS.tally(stacks) == {
        "penstock.rpc.servicer": 1 / 3,
        "penstock.http2.connection": 1 / 3,
        NOWHERE: 1 / 3,
    }


def test_stacks_are_read_as_perf_prints_them() -> None:
    printed = (
        "            7f1 __libc_malloc+0x1f ([kernel.kallsyms])\n"
        "            7f2 CPyDef_servicer___f (/a/b.so)\n"
        "\n"
        "            7f3 [unknown] (/a/b.so)\n"
        "\n"
    )
    assert list(read_stacks(printed)) == [["__libc_malloc", "CPyDef_servicer___f"], ["[unknown]"]]
