"""With which options a store is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.models.remote.address import BucketAddress
from penstock.models.remote.credentials import VARIABLE, Credentials

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


def options(home: Path, environment: dict[str, str], address: str = "s3://bucket/a") -> Any:
    return Credentials(environment, home).options(BucketAddress.parse(address))


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A home with profiles of Amazon's tools."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        "[work]\naws_access_key_id = w\naws_secret_access_key = ws\naws_session_token = wt\n"
    )
    (folder / "config").write_text(
        "[default]\nregion = us-west-2\n"
        "[profile work]\nregion = eu-west-1\ns3 =\n    addressing_style = virtual\n"
        "endpoint_url = http://store:9000\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = work\n"
    )
    return tmp_path


@pytest.mark.contract("R-29", "EV-05")
def test_keys_of_the_environment_come_first(profiles: Path) -> None:
    assert options(profiles, ENVIRONMENT) == {
        "access_key_id": "id",
        "secret_access_key": "secret",
        "session_token": "token",
        "region": "eu-central-1",
    }


@pytest.mark.contract("R-29", "N-01")
def test_a_profile_has_keys_region_endpoint_and_style(profiles: Path) -> None:
    assert options(profiles, {**ENVIRONMENT, "AWS_PROFILE": "work", "AWS_DEFAULT_REGION": ""}) == {
        "access_key_id": "w",
        "secret_access_key": "ws",
        "session_token": "wt",
        "region": "eu-west-1",
        "endpoint": "http://store:9000",
        "virtual_hosted_style_request": True,
    }


def test_without_keys_the_default_profile_is_read(profiles: Path) -> None:
    found = options(profiles, {})
    assert found == {"access_key_id": "d", "secret_access_key": "ds", "region": "us-west-2"}


def test_web_identities_and_machines_are_left_to_the_library(tmp_path: Path) -> None:
    assert options(tmp_path, {}) == {}
    assert options(tmp_path, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}) == {}


def test_an_unknown_profile_is_named(profiles: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no profile 'wrok'"):
        options(profiles, {"AWS_PROFILE": "wrok"})


def test_a_profile_with_a_role_needs_amazons_library(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(InvalidRequestError, match=r"'role' .* pip install boto3"):
        options(profiles, {"AWS_PROFILE": "role"})


def test_the_endpoint_of_the_address_comes_before_that_of_the_environment(tmp_path: Path) -> None:
    given = {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": "http://elsewhere"}
    assert options(tmp_path, given)["endpoint"] == "http://elsewhere"
    assert options(tmp_path, given, "s3://host:1/b")["endpoint"] == "https://host:1"


def test_no_profile_takes_the_endpoint_of_the_address_or_of_the_environment(
    profiles: Path, tmp_path: Path
) -> None:
    for variables in ({}, {"AWS_PROFILE": "work"}, {"HOME": "without profiles"}):
        home = tmp_path / "empty" if "HOME" in variables else profiles
        found = options(home, variables, "s3://http://store:1/bucket")
        assert found["endpoint"] == "http://store:1"
        elsewhere = {**variables, "AWS_ENDPOINT_URL_S3": "http://elsewhere"}
        assert options(home, elsewhere)["endpoint"] == "http://elsewhere"


def test_the_style_of_the_credential_file_comes_before_that_of_its_profile(profiles: Path) -> None:
    file = profiles / "credentials.json"
    file.write_text(json.dumps({"s3": {"": {"profile": "work", "addressing_style": "path"}}}))
    found = options(profiles, {VARIABLE: str(file)})
    assert found["virtual_hosted_style_request"] is False
    assert "addressing_style" not in found


@pytest.mark.contract("R-32", "EV-04")
def test_the_longest_prefix_of_the_credential_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    keys = {"": "any", "s3://bucket": "bucket", "s3://bucket/a": "folder", "s3://other": "other"}
    stores = {prefix: {"key_id": name, "secret_key": "s"} for prefix, name in keys.items()}
    file.write_text(json.dumps({"s3": stores, "gs": {"": "/account.json"}}))
    given = {**ENVIRONMENT, VARIABLE: str(file)}
    assert options(tmp_path, given, "s3://bucket/a/b")["access_key_id"] == "folder"
    assert options(tmp_path, given, "s3://bucket/b")["access_key_id"] == "bucket"
    assert options(tmp_path, given, "s3://third")["access_key_id"] == "any"
    assert options(tmp_path, given, "gs://x") == {"application_credentials": "/account.json"}


@pytest.mark.contract("R-32")
def test_what_the_credential_file_does_not_name_is_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"s3": {"s3://other": {"key_id": "other"}}}))
    assert options(tmp_path, {**ENVIRONMENT, VARIABLE: str(file)})["access_key_id"] == "id"


@pytest.mark.parametrize("text", ["", "[]", '{"s3": 1}', "\0"])
def test_a_credential_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(text)
    with pytest.raises(InvalidRequestError, match=str(file)):
        options(tmp_path, {VARIABLE: str(file)})


@pytest.mark.contract("R-30")
def test_google_without_credentials_is_anonymous(tmp_path: Path) -> None:
    assert options(tmp_path, {}, "gs://b") == {"skip_signature": True}
    assert options(tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": "/x"}, "gs://b") == {}
    assert options(tmp_path, {"GCE_METADATA_HOST": "h"}, "gs://b") == {}
    emulator = options(tmp_path, {"STORAGE_EMULATOR_HOST": "127.0.0.1:1"}, "gs://b")
    assert emulator == {"base_url": "http://127.0.0.1:1", "skip_signature": True}


@pytest.mark.contract("R-31")
def test_variables_of_azure(tmp_path: Path) -> None:
    account = {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "key"}
    expected = {"account_name": "acc", "account_key": "key"}
    assert options(tmp_path, account, "as://acc/box") == expected
    assert options(tmp_path, account, "as://other/box") == {"account_name": "other"}
    managed = {
        **account,
        "AZURE_STORAGE_AUTH_TYPE": "managed_identity",
        "AZURE_STORAGE_CLIENT_ID": "client",
    }
    found = options(tmp_path, managed, "as://acc/box")
    assert found == {"account_name": "acc", "client_id": "client"}


def test_a_connection_string_of_azure_is_read(tmp_path: Path) -> None:
    text = "AccountName=dev;AccountKey=a2V5PT0=;BlobEndpoint=http://127.0.0.1:1/dev;"
    found = options(tmp_path, {"AZURE_STORAGE_CONNECTION_STRING": text}, "as://dev/box")
    assert found == {
        "account_name": "dev",
        "account_key": "a2V5PT0=",
        "endpoint": "http://127.0.0.1:1/dev",
    }
