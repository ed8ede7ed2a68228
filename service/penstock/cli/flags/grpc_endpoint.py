"""Options of the gRPC endpoint."""

from __future__ import annotations

from penstock.cli import values
from penstock.cli.flags.flag import Group, boolean, integer, text
from penstock.cli.flags.restrictions import restriction
from penstock.cli.flags.tls import tls_flags
from penstock.settings import CompressionLevel

GRPC = Group(
    "GRPC",
    (
        boolean("allow-grpc", "grpc.enabled", "Serve gRPC. Default true."),
        text("grpc-address", "grpc.address", "Address to listen on. Default 0.0.0.0."),
        integer("grpc-port", "grpc.port", "Default 8001; 0 takes a free one.", values.port),
        boolean(
            "reuse-grpc-port",
            "grpc.reuse_port",
            "Share the port with other servers that set this too.",
        ),
        text(
            "grpc-header-forward-pattern",
            "grpc.header_forward_pattern",
            "Metadata keys that match this expression become request parameters.",
        ),
        integer(
            "grpc-infer-thread-count",
            "grpc.infer_thread_count",
            "Threads for inference calls, 2 to 128. Default 2.",
            values.infer_thread_count,
        ),
        integer(
            "grpc-infer-allocation-pool-size",
            "grpc.infer_allocation_pool_size",
            "Request and response objects kept for reuse. Default 8.",
        ),
        integer(
            "grpc-max-response-pool-size",
            "grpc.max_response_pool_size",
            "Most responses of a request that wait for a slow reader. Default: what the model's "
            "backend or its parameter penstock.response_window says.",
            values.positive("Error: --grpc-max-response-pool-size must be greater than 0."),
        ),
        integer(
            "grpc-max-message-size",
            "grpc.max_message_size",
            "Largest message in bytes of requests that carry tensors or files: ModelInfer, "
            "ModelStreamInfer and, with --model-control-mode=explicit, RepositoryModelLoad. "
            "Default 2147483647.",
            values.at_least("grpc-max-message-size", 65536),
        ),
        integer(
            "grpc-max-control-message-size",
            "grpc.max_control_message_size",
            "Largest message in bytes of all other requests; with --grpc-transport=grpcio it is "
            "refused once it has come. Default 1048576.",
            values.at_least("grpc-max-control-message-size", 65536),
        ),
        *tls_flags("grpc"),
        text(
            "grpc-infer-response-compression-level",
            "grpc.response_compression",
            'Compression of responses: "none", "low", "medium" or "high". Default "none".',
            # Triton's error message names the option with underscores.
            values.member_of(CompressionLevel, "grpc_infer_response_compression_level"),
        ),
        integer(
            "grpc-keepalive-time",
            "grpc.keepalive.time_ms",
            "Milliseconds of silence before the server pings. Default 7200000.",
        ),
        integer(
            "grpc-keepalive-timeout",
            "grpc.keepalive.timeout_ms",
            "Milliseconds to wait for a ping's answer before disconnecting. Default 20000.",
        ),
        boolean(
            "grpc-keepalive-permit-without-calls",
            "grpc.keepalive.permit_without_calls",
            "Ping also while no call is in flight. Default false.",
        ),
        integer(
            "grpc-http2-max-pings-without-data",
            "grpc.keepalive.max_pings_without_data",
            "Pings sent while there is nothing else to send; 0 is no limit. Default 2.",
        ),
        integer(
            "grpc-http2-min-recv-ping-interval-without-data",
            "grpc.keepalive.min_recv_ping_interval_without_data_ms",
            "Milliseconds between pings of an idle client, below which they are strikes. "
            "Default 300000.",
        ),
        integer(
            "grpc-http2-max-ping-strikes",
            "grpc.keepalive.max_ping_strikes",
            "Ping strikes tolerated before the connection is closed; 0 is no limit. Default 2.",
        ),
        integer(
            "grpc-max-connection-age",
            "grpc.keepalive.max_connection_age_ms",
            "Milliseconds after which a connection is closed gracefully. Default never.",
        ),
        integer(
            "grpc-max-connection-age-grace",
            "grpc.keepalive.max_connection_age_grace_ms",
            "Milliseconds that calls in flight then still get. Default no limit.",
        ),
        restriction("grpc-restricted-protocol", "protocol", "grpc.restrictions"),
        text(
            "grpc-transport",
            "grpc.transport",
            'Implementation of gRPC: "native" (default) or "grpcio", which bounds neither what'
            " a compressed message unpacks to before it is complete, nor the memory of messages"
            " that are not complete. An option of Penstock only.",
            values.one_of("grpc-transport", "native", "grpcio"),
        ),
        boolean(
            "grpc-reflection",
            "grpc.reflection",
            "Serve grpc.reflection.v1 and v1alpha, which describe the services to any client. "
            "Default true. An option of Penstock only.",
        ),
        text(
            "engine-rpc",
            "grpc.engine_rpc",
            'Serve the language models to routers of engines on the gRPC port: "vllm" is'
            " vllm.grpc.engine.VllmEngine; vllm:MODEL names the model of calls that name none."
            " Default none. An option of Penstock only.",
            values.one_of_with_name("engine-rpc", "vllm"),
        ),
        boolean(
            "grpc-channelz",
            "grpc.channelz",
            "Serve grpc.channelz.v1: counts of calls and connections, with the addresses of"
            " clients. Default false. An option of Penstock only.",
        ),
    ),
)
