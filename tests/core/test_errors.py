"""Errors of the core, conversion of foreign exceptions, and error codes."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.errors import (
    AlreadyExistsError,
    BackendNotInstalledError,
    ConfigError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    NotFoundError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
    as_inference_error,
    error_from_code,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InferenceError, "UNKNOWN"),
        (InternalError, "INTERNAL"),
        (NotFoundError, "NOT_FOUND"),
        (InvalidRequestError, "INVALID_ARG"),
        (UnavailableError, "UNAVAILABLE"),
        (ExhaustedError, "RESOURCE_EXHAUSTED"),
        (UnsupportedError, "UNSUPPORTED"),
        (AlreadyExistsError, "ALREADY_EXISTS"),
        (RequestCancelledError, "CANCELLED"),
    ],
)
def test_an_error_survives_the_way_as_code_and_text(error: type[InferenceError], code: str) -> None:
    arrived = error_from_code(error.code, error("why").message)
    assert (error.code, type(arrived), arrived.message) == (code, error, "why")


@pytest.mark.parametrize("error", [ModelLoadError, ConfigError, BackendNotInstalledError])
def test_an_error_of_loading_is_an_invalid_argument(error: type[InferenceError]) -> None:
    assert type(error_from_code(error.code, "")) is InvalidRequestError


def test_a_rejected_request_arrives_as_unavailable() -> None:
    assert type(error_from_code(RejectedError.code, "")) is UnavailableError


def test_an_unknown_code_is_the_base_class() -> None:
    arrived = error_from_code("BROKEN", "odd")
    assert type(arrived) is InferenceError
    assert arrived.message == "odd"


def test_an_error_of_ours_stays_itself() -> None:
    error = UnavailableError("busy")
    assert as_inference_error(error) is error


def test_a_foreign_error_becomes_internal_with_its_class_and_text() -> None:
    error = as_inference_error(KeyError("logits"))
    assert (type(error), error.message) == (InternalError, "KeyError: 'logits'")


def test_a_foreign_error_without_text_is_named() -> None:
    assert as_inference_error(RuntimeError()).message == "RuntimeError"


def test_a_cancellation_becomes_one_of_ours() -> None:
    assert type(as_inference_error(asyncio.CancelledError())) is RequestCancelledError


@pytest.mark.parametrize(
    ("built", "extra", "said"),
    [
        ("", "onnx", ""),
        ("none", "onnx", "built with ENGINE=none: build one with --build-arg ENGINE=onnx"),
        ("onnx,openai", "fil", "build one with --build-arg ENGINE=onnx,openai,fil"),
        ("onnx,openai", "vllm", "build one with --build-arg ENGINE=vllm"),
        ("onnx", "trtllm", "build one with --target trtllm"),
    ],
)
def test_in_an_image_a_missing_engine_names_the_image_that_has_it(
    monkeypatch: pytest.MonkeyPatch, built: str, extra: str, said: str
) -> None:
    monkeypatch.setenv("PENSTOCK_IMAGE_ENGINE", built)
    text = f"backend needs a package: pip install 'penstock[{extra}]'"
    told = BackendNotInstalledError(text).message
    assert told.startswith(text)
    assert told.endswith(said)
    assert (told == text) == (said == "")


def test_a_missing_package_that_is_no_extra_names_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_IMAGE_ENGINE", "onnx")
    assert BackendNotInstalledError("pip install boto3").message == "pip install boto3"
