"""Certificates that change while a server runs: what is taken into use, and what is not."""

from __future__ import annotations

import os
import ssl
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from loadtest.authority import Authority, write_pair, write_whole

from penstock.settings import TlsSettings
from penstock.system.certificates import ServerCertificates
from penstock.system.tls import server_context, validity

AUTHORITY = Authority()


def settings(folder: Path, *, mutual: bool = True) -> TlsSettings:
    """The settings of `server.pem`, `server.key` and `root.pem` in a folder."""
    return TlsSettings(
        enabled=True,
        mutual=mutual,
        certificate=str(folder / "server.pem"),
        key=str(folder / "server.key"),
        root_certificate=str(folder / "root.pem"),
    )


def fill(folder: Path, authority: Authority = AUTHORITY) -> Path:
    folder.mkdir(exist_ok=True)
    write_pair(folder, "server", authority.signed(dns=["localhost"]))
    write_whole(folder / "root.pem", authority.pem)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


async def test_new_files_make_a_new_context(folder: Path) -> None:
    certificates = ServerCertificates("gRPC", settings(folder))
    current = certificates.context("h2")
    before, pem = current(), certificates.pem
    await certificates.look()
    assert current() is before
    fill(folder)
    await certificates.look()
    assert current() is not before
    assert certificates.pem != pem
    assert (certificates.changes, certificates.failures) == (1, 0)


async def test_a_link_to_another_folder_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes does it: `..data` is replaced, and the links to the files in it stay."""
    for name in ("old", "new"):
        fill(tmp_path / name)
        for file in (tmp_path / name).iterdir():
            os.utime(file, (1, 1))
    (tmp_path / "..data").symlink_to("old")
    for name in ("server.pem", "server.key", "root.pem"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificates = ServerCertificates("gRPC", settings(tmp_path))
    before = certificates.context("h2")()
    (tmp_path / "next").symlink_to("new")
    os.replace(tmp_path / "next", tmp_path / "..data")
    await certificates.look()
    assert certificates.context("h2")() is not before
    assert certificates.pem.certificate == (tmp_path / "new" / "server.pem").read_bytes()


async def test_files_that_were_only_touched_change_nothing(folder: Path) -> None:
    certificates = ServerCertificates("gRPC", settings(folder))
    before = certificates.context("h2")()
    os.utime(folder / "server.pem", (1, 1))
    await certificates.look()
    assert certificates.context("h2")() is before
    assert (certificates.changes, certificates.failures) == (0, 0)


OTHER = Authority().signed(dns=["localhost"])
EXPIRED = AUTHORITY.signed(ends=timedelta(seconds=-5))
EARLY = AUTHORITY.signed(begins=timedelta(hours=1))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"server.key": OTHER[1]}, "key values mismatch"),
        ({"server.pem": b""}, ""),
        ({"server.pem": b"no certificate"}, ""),
        ({"root.pem": b""}, ""),
        ({"root.pem": None}, "No such file"),
        ({"server.pem": EXPIRED[0], "server.key": EXPIRED[1]}, "it expired at 20"),
        ({"server.pem": EARLY[0], "server.key": EARLY[1]}, "it is not valid before 20"),
        ({"server.key": AUTHORITY.signed(password=b"secret")[1]}, "the key is encrypted"),
    ],
)
async def test_wrong_files_leave_the_old_ones_in_use(
    folder: Path, changed: dict[str, bytes | None], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = ServerCertificates("gRPC", settings(folder))
    current = certificates.context("h2")
    before, pem = current(), certificates.pem
    for name, content in changed.items():
        if content is None:
            (folder / name).unlink()
        else:
            write_whole(folder / name, content)
    for _ in range(3):
        await certificates.look()
    assert (current(), certificates.pem) == (before, pem)
    assert (certificates.changes, certificates.failures) == (0, 1)
    (line,) = caplog.messages
    assert line.startswith("the certificate of gRPC: ")
    assert told in line
    assert line.endswith("; the one before it stays in use")
    fill(folder)
    await certificates.look()
    assert certificates.changes == 1


async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(folder: Path) -> None:
    certificates = ServerCertificates("gRPC", settings(folder))
    certificates.context("h2")
    os.mkfifo(folder / "pipe")
    os.replace(folder / "pipe", folder / "server.pem")
    for _ in range(2):
        await certificates.look()
    assert certificates.failures == 1
    fill(folder)
    await certificates.look()
    assert certificates.changes == 1


async def test_files_that_are_replaced_one_after_the_other_are_no_mistake(folder: Path) -> None:
    certificates = ServerCertificates("gRPC", settings(folder))
    certificates.context("h2")
    pem, key = AUTHORITY.signed()
    write_whole(folder / "server.pem", pem)
    await certificates.look()
    write_whole(folder / "server.key", key)
    await certificates.look()
    assert (certificates.changes, certificates.failures) == (1, 0)


async def test_an_authority_goes_though_the_certificate_has_expired(folder: Path) -> None:
    """The old certificate cannot be better than the same one with another authority."""
    write_pair(folder, "server", EXPIRED)
    certificates = ServerCertificates("gRPC", settings(folder))
    before = certificates.context("h2")()
    write_whole(folder / "root.pem", Authority().pem)
    await certificates.look()
    assert certificates.context("h2")() is not before


async def test_a_certificate_that_has_expired_is_told_at_the_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pair(folder, "server", EXPIRED)
    ServerCertificates("HTTP", settings(folder)).context("http/1.1")
    assert "the certificate of HTTP: it expired at" in caplog.text


async def test_files_that_change_while_they_are_read_are_read_again(folder: Path) -> None:
    """The new certificate with the old key is no mistake of whoever replaces both."""
    new = AUTHORITY.signed()
    meanwhile: list[bytes] = []

    def make(*arguments: Any, **options: Any) -> ssl.SSLContext:
        try:
            return server_context(*arguments, **options)
        finally:
            while meanwhile:
                write_whole(folder / "server.key", meanwhile.pop())

    certificates = ServerCertificates("gRPC", settings(folder), make=make)
    certificates.context("h2")
    write_whole(folder / "server.pem", new[0])
    meanwhile.append(new[1])
    await certificates.look()
    assert (certificates.changes, certificates.failures) == (0, 0)
    await certificates.look()
    assert (certificates.changes, certificates.failures) == (1, 0)


async def test_the_day_of_expiry_is_that_of_the_first_to_expire(folder: Path) -> None:
    pair = AUTHORITY.signed(ends=timedelta(hours=1))
    longer = AUTHORITY.signed(ends=timedelta(days=36500))[0]
    write_pair(folder, "server", (pair[0] + longer, pair[1]))
    certificates = ServerCertificates("gRPC", settings(folder))
    certificates.context("h2")
    assert certificates.expires is not None
    assert abs(certificates.expires - time.time() - 3600) < 60


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMAYwBDACMAA=\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nä\n-----END CERTIFICATE-----\n".encode(),
    ],
)
def test_what_has_no_dates_has_none(pem: bytes) -> None:
    assert validity(pem) is None


def test_dates_beyond_2049_are_read() -> None:
    dates = validity(AUTHORITY.signed(ends=timedelta(days=36500))[0])
    assert dates is not None
    assert dates[1] > time.time() + 90 * 365 * 86400
