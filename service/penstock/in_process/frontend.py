"""The endpoints of an in-process server, with the names of Triton's `tritonfrontend`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from types import TracebackType
from typing import Any, ClassVar, Protocol, TypeVar

from penstock.in_process.errors import AlreadyExistsError, InvalidArgumentError
from penstock.in_process.loop_thread import HeldContext
from penstock.in_process.server import Server as InProcessServer
from penstock.settings import (
    CompressionLevel,
    GrpcSettings,
    HttpSettings,
    KeepaliveSettings,
    MetricsSettings,
    Settings,
    TlsSettings,
)
from penstock.settings.rules import SettingsError

__all__ = ["KServeGrpc", "KServeHttp", "Metrics"]

Self = TypeVar("Self", bound="_Endpoint")


class _EndpointOptions(Protocol):
    def settings(self, base: Settings) -> Settings: ...


class _Endpoint:
    """An endpoint of a server, open from `start` to `stop`, or in a `with` block."""

    Options: Any
    Server: ClassVar[Any]
    """The class itself: in older versions of Triton's the endpoint was a class within."""

    def __init_subclass__(cls) -> None:
        cls.Server = cls

    def __init__(self, server: InProcessServer, options: Any = None) -> None:
        if options is None:
            options = self.Options()
        if not isinstance(options, self.Options):
            raise InvalidArgumentError(
                "Incorrect type for options. options argument must be of type"
                f" {self.Options.__qualname__}"
            )
        self._server = server  # a server that nobody holds stops
        self._running = server._started()
        self._held: HeldContext[int] | None = None
        self._options: _EndpointOptions = options
        self.port = 0
        """Where it listens: of interest where the options have port 0, which takes any."""

    def start(self) -> None:
        """Listen; raises `UnavailableError` where that is not possible, and `AlreadyExistsError`
        where it does so already.
        """
        if self._held is not None:
            raise AlreadyExistsError("server is already running.")
        try:
            settings = self._options.settings(_silent(self._running.settings))
        except SettingsError as error:
            raise InvalidArgumentError(str(error)) from error
        self._held, self.port = self._running.loop.run(self._running.open_frontend(settings))

    def stop(self) -> None:
        """Listen no more; requests that run are finished. The server goes on."""
        if self._held is not None and not self._running.stopped:
            self._running.loop.run(self._running.close_frontend(self._held))
        self._held = None

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _silent(settings: Settings) -> Settings:
    """The settings without any endpoint."""
    return replace(
        settings,
        http=HttpSettings(enabled=False),
        grpc=GrpcSettings(enabled=False),
        metrics=replace(settings.metrics, enabled=False),
    )


def _check_fields(options: Any) -> None:
    """Refuse values of other types than the defaults have, and numbers that are negative."""
    for one in fields(options):
        value, kind = getattr(options, one.name), type(one.default)
        if kind is int:
            last = " to 65535" if one.name == "port" else ""
            if not isinstance(value, int) or value < 0 or (last and value > 65535):
                raise ValueError(f"{one.name} must be a number from 0{last}")
        elif not isinstance(value, kind):
            raise ValueError(f"{one.name} must be a {kind.__name__}, not {value!r}")


def _tls(options: Any) -> TlsSettings:
    return TlsSettings(
        enabled=options.use_ssl or options.use_mutual_auth,
        mutual=options.use_mutual_auth,
        certificate=options.server_cert,
        key=options.server_key,
        root_certificate=options.root_cert,
    )


class KServeHttp(_Endpoint):
    """The HTTP endpoint: KServe v2, generate, and its streams."""

    @dataclass
    class Options:
        """Where it listens, and how; `thread_count` has no effect here. Triton has no TLS here."""

        address: str = "0.0.0.0"
        port: int = 8000
        reuse_port: bool = False
        thread_count: int = 8
        header_forward_pattern: str = ""
        use_ssl: bool = False
        server_cert: str = ""
        server_key: str = ""
        root_cert: str = ""
        use_mutual_auth: bool = False

        def __post_init__(self) -> None:
            _check_fields(self)

        def settings(self, base: Settings) -> Settings:
            """The settings of a server with this endpoint."""
            http = HttpSettings(
                address=self.address,
                port=self.port,
                reuse_port=self.reuse_port,
                thread_count=self.thread_count,
                header_forward_pattern=self.header_forward_pattern,
                tls=_tls(self),
            )
            return replace(base, http=http)


class KServeGrpc(_Endpoint):
    """The gRPC endpoint."""

    class Grpc_compression_level(IntEnum):  # noqa: N801
        """The compression of responses."""

        NONE = 0
        LOW = 1
        MED = 2
        HIGH = 3

    @dataclass
    class Options:
        """Where it listens, TLS, keepalive and compression."""

        address: str = "0.0.0.0"
        port: int = 8001
        reuse_port: bool = False
        use_ssl: bool = False
        server_cert: str = ""
        server_key: str = ""
        root_cert: str = ""
        use_mutual_auth: bool = False
        keepalive_time_ms: int = 7_200_000
        keepalive_timeout_ms: int = 20_000
        keepalive_permit_without_calls: bool = False
        http2_max_pings_without_data: int = 2
        http2_min_recv_ping_interval_without_data_ms: int = 300_000
        http2_max_ping_strikes: int = 2
        max_connection_age_ms: int = 0
        max_connection_age_grace_ms: int = 0
        infer_compression_level: int = 0
        infer_allocation_pool_size: int = 8
        forward_header_pattern: str = ""

        def __post_init__(self) -> None:
            _check_fields(self)
            if self.infer_compression_level not in range(4):
                raise ValueError("infer_compression_level must be a number from 0 to 3")

        def settings(self, base: Settings) -> Settings:
            """The settings of a server with this endpoint."""
            grpc = GrpcSettings(
                address=self.address,
                port=self.port,
                reuse_port=self.reuse_port,
                header_forward_pattern=self.forward_header_pattern,
                infer_allocation_pool_size=self.infer_allocation_pool_size,
                response_compression=list(CompressionLevel)[int(self.infer_compression_level)],
                tls=_tls(self),
                keepalive=self._keepalive(),
            )
            return replace(base, grpc=grpc)

        def _keepalive(self) -> KeepaliveSettings:
            return KeepaliveSettings(
                time_ms=self.keepalive_time_ms,
                timeout_ms=self.keepalive_timeout_ms,
                permit_without_calls=self.keepalive_permit_without_calls,
                max_pings_without_data=self.http2_max_pings_without_data,
                min_recv_ping_interval_without_data_ms=(
                    self.http2_min_recv_ping_interval_without_data_ms
                ),
                max_ping_strikes=self.http2_max_ping_strikes,
                max_connection_age_ms=self.max_connection_age_ms or None,
                max_connection_age_grace_ms=self.max_connection_age_grace_ms or None,
            )


class Metrics(_Endpoint):
    """The endpoint for Prometheus."""

    @dataclass
    class Options:
        """Where it listens; `thread_count` has no effect here."""

        address: str = "0.0.0.0"
        port: int = 8002
        thread_count: int = 8

        def __post_init__(self) -> None:
            _check_fields(self)

        def settings(self, base: Settings) -> Settings:
            """The settings of a server with this endpoint."""
            metrics: MetricsSettings = replace(
                base.metrics, enabled=True, address=self.address, port=self.port
            )
            return replace(base, metrics=metrics)
