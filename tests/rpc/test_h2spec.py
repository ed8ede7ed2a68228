"""h2spec, a test suite for HTTP/2 servers, against the native transport."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frames import Limits
from penstock.rpc.native.transport import open_native
from penstock.settings import GrpcSettings, TlsSettings
from programs.places import find
from rpc.certificates import tls, write_certificates

H2SPEC = find("h2spec")
FRAMES = Limits(max_frame_size=1 << 14)
"""h2spec takes it for granted that no frame may be larger."""

pytestmark = pytest.mark.needs("h2spec", "" if H2SPEC else "h2spec is not installed: make tools")


async def run(tls: TlsSettings, limits: Limits, *arguments: str) -> str:
    """The summary of h2spec for a server with these settings."""
    settings = GrpcSettings(address="127.0.0.1", port=0, tls=tls)
    async with open_native([], settings, ExitDeadline(0), limits) as port:
        process = await asyncio.create_subprocess_exec(
            H2SPEC, "-p", str(port), "-o", "1", *arguments, stdout=PIPE, stderr=STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), 200)
    return output.decode()


async def test_every_case_passes() -> None:
    output = await run(TlsSettings(), FRAMES)
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in output, output[-3000:]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_every_case_passes_over_tls(tmp_path: Path) -> None:
    output = await run(tls(write_certificates(tmp_path)), FRAMES, "-t", "-k")
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in output, output[-3000:]


async def test_larger_frames_than_it_knows_of_are_all_that_it_minds() -> None:
    output = await run(TlsSettings(), Limits())
    failures = output.partition("Failures:")[2]
    assert re.findall("\N{MULTIPLICATION SIGN} (.*)", failures) == [
        "3: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE"
    ]
