"""Completes a configuration with what the remote says of its model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.backend import (
    ConfigError,
    DataType,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    Output,
    TensorFormat,
    TransactionPolicy,
)
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import model_config_pb2
from penstock_backends.remote.call_failures import reason_of
from penstock_backends.remote.grpc_connection import UNIMPLEMENTED, CallStatus
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.kserve_calls import CONFIG, METADATA, Heads, ask
from penstock_backends.remote.settings import RemoteSettings

logger = logging.getLogger(__name__)

_DATATYPES = model_config_pb2.DataType
_FORMATS = model_config_pb2.ModelInput.Format


async def complete(config: ModelConfig, settings: RemoteSettings) -> ModelConfig:
    """The configuration with tensors, batch size and policy of the remote's model.

    What is declared is held against them. A remote that is away refuses the model only where its
    tensors are not declared. Raises `ModelLoadError`.
    """
    declared = bool(config.input and config.output)
    try:
        found = await _ask_fleet(settings)
    except ModelLoadError as error:
        if not declared:
            hint = "; declare 'input' and 'output' to load the model before its remote is there"
            raise ModelLoadError(f"{error.message}{hint}") from error
        logger.warning("model '%s' is loaded without its remote: %s", config.name, error.message)
        return on_cpu(config)
    if declared:
        _check(config, found)
    else:
        config = replace(config, input=found.input, output=found.output)
        config = replace(config, max_batch_size=config.max_batch_size or found.max_batch_size)
    if config.model_transaction_policy is None and found.decoupled:
        config = replace(config, model_transaction_policy=TransactionPolicy(decoupled=True))
    return on_cpu(config)


def on_cpu(config: ModelConfig) -> ModelConfig:
    """The configuration with one instance, which has no GPU, unless it says something else."""
    if config.instance_group:
        return config
    group = InstanceGroup(kind=InstanceKind.KIND_CPU, count=1)
    return replace(config, instance_group=(group,))


def _check(config: ModelConfig, found: ModelConfig) -> None:
    """Refuse what the remote's model does not have."""
    for kind, declared, known in (
        ("input", config.input, found.inputs_by_name),
        ("output", config.output, found.outputs_by_name),
    ):
        for tensor in declared:
            there = known.get(tensor.name)
            if there is None:
                names = ", ".join(known)
                raise ConfigError(f"{kind} '{tensor.name}' is none of the remote's: {names}")
            if there.data_type is not tensor.data_type:
                raise ConfigError(
                    f"{kind} '{tensor.name}' is {_name(tensor.data_type)} here and"
                    f" {_name(there.data_type)} at the remote"
                )


def _name(datatype: DataType | None) -> str:
    return "untyped" if datatype is None else datatype.config_name


async def _ask_fleet(settings: RemoteSettings) -> ModelConfig:
    """The answer of the first address that gives one; all are asked at once."""
    context = settings.tls(["h2"])
    endpoints = [GrpcEndpoint(one, settings, context) for one in settings.addresses]
    asked = [asyncio.ensure_future(_ask_within(one, settings)) for one in endpoints]
    reasons: list[str] = []
    try:
        for answer in asyncio.as_completed(asked):
            try:
                return await answer
            except ModelLoadError as error:
                reasons.append(error.message)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for endpoint in endpoints:
            await endpoint.close()
    raise ModelLoadError("; ".join(reasons[:4]))


async def _ask_within(endpoint: GrpcEndpoint, settings: RemoteSettings) -> ModelConfig:
    """The answer of an address; raises `ModelLoadError` that names it."""
    limit = settings.connect_timeout
    try:
        async with asyncio.timeout(limit):
            return await _ask(endpoint, settings)
    except TimeoutError:
        raise ModelLoadError(f"remote {endpoint.address}: no answer for {limit:g} s") from None
    except ModelLoadError as error:
        raise ModelLoadError(f"remote {endpoint.address}: {error.message}") from error


async def _ask(endpoint: GrpcEndpoint, settings: RemoteSettings) -> ModelConfig:
    heads = Heads(settings)
    wanted: dict[str, Any] = {"name": settings.model, "version": settings.version}
    status, answer = await ask(endpoint, heads, CONFIG, pb.ModelConfigRequest(**wanted))
    if answer is not None:
        return _of_config(answer.config)
    if status.code != UNIMPLEMENTED:
        raise _refused("ModelConfig", status)
    status, answer = await ask(endpoint, heads, METADATA, pb.ModelMetadataRequest(**wanted))
    if answer is None:
        raise _refused("ModelMetadata", status)
    return _of_metadata(answer)


def _refused(method: str, status: CallStatus) -> ModelLoadError:
    return ModelLoadError(reason_of(status, method, "kserve"))


def _of_config(config: Any) -> ModelConfig:
    """The client's view of a Triton model: reshaping and batching are the remote's business."""
    return ModelConfig(
        max_batch_size=config.max_batch_size,
        input=tuple(_input(one) for one in config.input),
        output=tuple(
            Output(name=one.name, data_type=_datatype(one), dims=tuple(one.dims))
            for one in config.output
        ),
        model_transaction_policy=TransactionPolicy(
            decoupled=config.model_transaction_policy.decoupled
        ),
    )


def _input(given: Any) -> Input:
    return Input(
        name=given.name,
        data_type=_datatype(given),
        dims=tuple(given.dims),
        format=TensorFormat(_FORMATS.Name(given.format)),
        optional=given.optional,
        allow_ragged_batch=given.allow_ragged_batch,
    )


def _datatype(given: Any) -> DataType:
    try:
        return DataType.from_config(_DATATYPES.Name(given.data_type))
    except ValueError as error:
        raise ModelLoadError(f"tensor '{given.name}' of the remote: {error}") from error


def _of_metadata(answer: Any) -> ModelConfig:
    return ModelConfig(
        input=tuple(Input(**_declared(one)) for one in _nonempty(answer.inputs, "inputs")),
        output=tuple(Output(**_declared(one)) for one in _nonempty(answer.outputs, "outputs")),
    )


def _nonempty(tensors: Iterable[Any], what: str) -> Iterable[Any]:
    if not tensors:
        raise ModelLoadError(f"its metadata names no {what}: declare them in config.pbtxt")
    return tensors


def _declared(given: Any) -> dict[str, Any]:
    try:
        datatype = DataType(given.datatype)
    except ValueError:
        raise ModelLoadError(
            f"tensor '{given.name}' of the remote has the unknown datatype '{given.datatype}'"
        ) from None
    return {"name": given.name, "data_type": datatype, "dims": tuple(given.shape)}
