"""Encoder of model statistics (the statistics extension)."""

from __future__ import annotations

from penstock.inflight.statistics import BatchStatistics, Duration, ResponseStatistics
from penstock.models.serving.answers import ModelStatistics
from penstock.protocol import grpc_service_pb2 as pb


def encode_statistics(model: ModelStatistics) -> pb.ModelStatistics:
    """The message of one model version."""
    counted = model.statistics
    return pb.ModelStatistics(
        name=model.name,
        version=model.version,
        last_inference=counted.last_inference,
        inference_count=counted.inference_count,
        execution_count=counted.execution_count,
        inference_stats=pb.InferStatistics(
            success=_duration(counted.success),
            fail=_duration(counted.fail),
            queue=_duration(counted.queue),
            compute_input=_duration(counted.compute_input),
            compute_infer=_duration(counted.compute_infer),
            compute_output=_duration(counted.compute_output),
            cache_hit=_duration(counted.cache_hit),
            cache_miss=_duration(counted.cache_miss),
        ),
        batch_stats=[_batch(size, batch) for size, batch in sorted(counted.batches.items())],
        response_stats={
            str(index): _response(response) for index, response in counted.responses.items()
        },
    )


def _batch(size: int, batch: BatchStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=size,
        compute_input=_duration(batch.compute_input),
        compute_infer=_duration(batch.compute_infer),
        compute_output=_duration(batch.compute_output),
    )


def _response(response: ResponseStatistics) -> pb.InferResponseStatistics:
    return pb.InferResponseStatistics(
        compute_infer=_duration(response.compute_infer),
        compute_output=_duration(response.compute_output),
        success=_duration(response.success),
        fail=_duration(response.fail),
        empty_response=_duration(response.empty_response),
        cancel=_duration(response.cancel),
    )


def _duration(duration: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=duration.count, ns=duration.ns)
