"""What the settings open to every client, for the log of the start."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.settings import Feature, Settings, restriction_of
from penstock.settings.secure import is_local


def exposures(settings: Settings) -> Iterator[str]:
    """A line for each thing that strangers may do because of an option."""
    asked = bool(settings.access_policy)  # who may, on every port
    if settings.model_upload and settings.repository.explicit and not asked:
        for flag, ways in _open_ways(settings):
            yield (
                f"every client may load files of its own as models over {ways}, that is, run code"
                f" here: --allow-model-upload=true needs {flag}=model-repository:<key>=<value>"
            )
    metrics = settings.metrics
    if settings.secure and metrics.enabled and not is_local(metrics.address):
        yield (
            f"--metrics-address={metrics.address} opens the metrics to everybody who reaches it,"
            " although --secure is given: that port has no TLS"
            f"{'' if asked else ' and no restrictions'}"
        )


def open_to_strangers(settings: Settings) -> Iterator[str]:
    """A line where whoever reaches the server may call its models, and no option has asked for it.

    Clients with certificates, or with the secret of a restriction, are no strangers.
    """
    if settings.access_policy or settings.secure or settings.sagemaker.enabled:
        return
    grpc, http = settings.grpc, settings.http
    found = {
        endpoint.address
        for endpoint in (grpc, http)
        if endpoint.enabled
        and not is_local(endpoint.address)
        and not endpoint.tls.mutual
        and restriction_of(Feature.INFERENCE, endpoint.restrictions) is None
    }
    if found:
        yield (
            f"everybody who reaches {' and '.join(sorted(found))} may call every model:"
            " --access-policy says who may, an address of this machine (127.0.0.1) keeps others out"
        )


def _open_ways(settings: Settings) -> Iterator[tuple[str, str]]:
    """The protocols by which anybody may load models, each with the flag that restricts it."""
    feature = Feature.MODEL_REPOSITORY
    if settings.http.enabled and not restriction_of(feature, settings.http.restrictions):
        yield "--http-restricted-api", "HTTP"
    if settings.grpc.enabled and not restriction_of(feature, settings.grpc.restrictions):
        yield "--grpc-restricted-protocol", "gRPC"
