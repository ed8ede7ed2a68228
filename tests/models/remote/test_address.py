"""Addresses of repositories in object stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.models.remote.address import BucketAddress, scheme_of


@pytest.mark.contract("R-29", "R-30", "R-31")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", ("s3", "bucket", "", "", "")),
        ("s3://bucket/", ("s3", "bucket", "", "", "")),
        ("s3://bucket/a/b/", ("s3", "bucket", "a/b", "", "")),
        ("s3://host:9000/bucket/a", ("s3", "bucket", "a", "https://host:9000", "")),
        ("s3://http://10.0.0.1:9000/bucket/a", ("s3", "bucket", "a", "http://10.0.0.1:9000", "")),
        ("s3://https://host:9000/bucket", ("s3", "bucket", "", "https://host:9000", "")),
        ("s3://https://s3.example.com/b/a", ("s3", "b", "a", "https://s3.example.com", "")),
        ("gs://bucket/a/b", ("gs", "bucket", "a/b", "", "")),
        ("as://account/box/a", ("as", "box", "a", "", "account")),
        (
            "as://account.blob.core.windows.net/box/a",
            ("as", "box", "a", "https://account.blob.core.windows.net", "account"),
        ),
    ],
)
def test_forms_of_addresses(text: str, expected: tuple[str, ...]) -> None:
    found = BucketAddress.parse(text)
    assert scheme_of(text) == found.scheme
    parts = (found.scheme, found.bucket, found.prefix, found.endpoint, found.account)
    assert parts == expected


@pytest.mark.parametrize(
    "text",
    [
        *("s3://", "gs:///a", "as://account", "as://", "s3://a b/c", "s3://https//host:1/b"),
        *("s3://http://host:99999/b", f"s3://host:{'9' * 5000}/b"),
    ],
)
def test_what_is_no_address_is_told_its_form(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{text}' is no address: {text[:2]}://"):
        BucketAddress.parse(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("s3a://b/c", "s3://b/c"),
        ("S3://b/c", "s3://b/c"),
        ("gcs://b", "gs://b"),
        ("abfss://a/b", "as://a/b"),
        ("abfss://box@acc.dfs.core.windows.net/x", "as://acc/box/x"),
        ("http://host:9000/bucket", "s3://http://host:9000/bucket"),
        ("https://b.s3.eu-west-1.amazonaws.com/x", "s3://b/x"),
        ("https://acc.blob.core.windows.net/box/x", "as://acc/box/x"),
        ("https://storage.googleapis.com/b/x", "gs://b/x"),
        ("https://huggingface.co/owner/name", "hf://owner/name"),
        ("s3:bucket/x", "s3://bucket/x"),
        ("s3//bucket", "s3://bucket"),
        ("gs:://bucket", "gs://bucket"),
        ("file:///data/models", "/data/models"),
    ],
)
def test_a_scheme_of_others_is_told_ours(text: str, meant: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"did you mean '{meant}'"):
        scheme_of(text)


@pytest.mark.parametrize("text", ["ftp://host/a", "s3:/bucket"])
def test_an_address_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        scheme_of(text)


@pytest.mark.parametrize("text", ["/data/models", "models", "./a:b", "c:", "a:b/c", "x/s3://y"])
def test_a_folder_has_no_scheme(text: str) -> None:
    assert scheme_of(text) == ""


@given(st.sampled_from(["s3", "gs", "as"]), st.text())
def test_any_text_is_an_address_or_refused(scheme: str, rest: str) -> None:
    text = f"{scheme}://{rest}"
    try:
        found = BucketAddress.parse(text)
    except InvalidRequestError:
        return
    assert found.bucket
    assert not found.key("m").startswith("/")
