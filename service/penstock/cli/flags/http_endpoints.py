"""Options of the HTTP endpoint, of client shared memory, and of the cloud endpoints."""

from __future__ import annotations

from penstock.cli import values
from penstock.cli.flags.flag import Flag, Group, boolean, integer, text
from penstock.cli.flags.restrictions import restriction
from penstock.cli.flags.tls import tls_flags

HTTP = Group(
    "HTTP",
    (
        boolean("allow-http", "http.enabled", "Serve HTTP. Default true."),
        text(
            "http-address",
            "http.address",
            "Address to listen on, or unix:PATH for a socket file. Default 0.0.0.0.",
        ),
        integer("http-port", "http.port", "Default 8000; 0 takes a free one.", values.port),
        boolean(
            "reuse-http-port",
            "http.reuse_port",
            "Share the port with other servers that set this too.",
        ),
        text(
            "http-header-forward-pattern",
            "http.header_forward_pattern",
            "Headers that match this expression become request parameters.",
        ),
        integer("http-thread-count", "http.thread_count", "Threads for HTTP. Default 8."),
        integer(
            "http-max-input-size",
            "http.max_input_size",
            "Largest request body in bytes, binary tensors apart. Default 67108864.",
            values.positive("Error: --http-max-input-size must be greater than 0."),
        ),
        integer(
            "http-max-json-values",
            "http.max_json_values",
            "Most values in large JSON: a string is one, an object eight, four lists one, numbers"
            " none. Default 1048576. An option of Penstock only.",
            values.positive("Error: --http-max-json-values must be greater than 0."),
        ),
        integer(
            "http-max-body-size",
            "http.max_body_size",
            "Largest request body in bytes, binary tensors included. Default 2147483647.",
            values.at_least("http-max-body-size", 65536),
        ),
        integer(
            "http-max-header-size",
            "http.max_header_size",
            "Largest head of a request in bytes: its line and header fields. Default 65536.",
            values.positive("Error: --http-max-header-size must be greater than 0."),
        ),
        integer(
            "http-max-header-count",
            "http.max_header_count",
            "Most header fields of a request. Default 100.",
            values.positive("Error: --http-max-header-count must be greater than 0."),
        ),
        integer(
            "http-header-timeout-secs",
            "http.header_timeout_secs",
            "A head must come within so many seconds. Default 20.",
            values.positive("Error: --http-header-timeout-secs must be greater than 0."),
        ),
        integer(
            "http-body-timeout-secs",
            "http.body_timeout_secs",
            "10000 bytes of a body, or its end, must come in each so many seconds. Default 20.",
            values.positive("Error: --http-body-timeout-secs must be greater than 0."),
        ),
        integer(
            "http-idle-timeout-secs",
            "http.idle_timeout_secs",
            "Idle connections are closed after so many seconds, metrics' too. Default 90.",
            values.positive("Error: --http-idle-timeout-secs must be greater than 0."),
        ),
        integer(
            "http-send-timeout-secs",
            "http.send_timeout_secs",
            "Clients that read nothing of an answer for so many seconds are left. Default 60.",
            values.positive("Error: --http-send-timeout-secs must be greater than 0."),
        ),
        integer(
            "sse-keepalive-secs",
            "http.event_keep_alive_secs",
            "An idle stream of events gets a comment each so many seconds; 0 for none. Default 15.",
            values.not_negative("sse-keepalive-secs"),
        ),
        *tls_flags("http"),
        boolean(
            "http-docs",
            "http.docs",
            "Describe the HTTP endpoint, at /openapi.json and on the page /docs. Default false.",
        ),
        restriction("http-restricted-api", "api", "http.restrictions"),
    ),
)

SHARED_MEMORY = Group(
    "Shared Memory",
    (
        boolean(
            "allow-client-shm",
            "client_shared_memory",
            "Let clients register shared memory. Default false.",
        ),
        text(
            "client-shm-prefix",
            "client_shm_prefix",
            "Beginning of the names of POSIX shared memory that clients may register. Default: "
            "any names but those that Python, engines and MPI give to their own, such as psm_.",
        ),
    ),
)

SAGEMAKER = Group(
    "Sagemaker",
    (
        boolean("allow-sagemaker", "sagemaker.enabled", "Serve SageMaker. Default false."),
        integer("sagemaker-port", "sagemaker.port", "Default 8080.", values.port),
        Flag(
            "sagemaker-safe-port-range",
            "integer>-<integer",
            values.pair(values.integer, values.integer, "-"),
            "sagemaker.safe_ports",
            "Ports that the other endpoints may have.",
        ),
        text(
            "sagemaker-model-root",
            "sagemaker.model_root",
            "Folder that SageMaker's models must lie below. Default /opt/ml/models, where the "
            "service puts them.",
        ),
        integer("sagemaker-thread-count", "sagemaker.thread_count", "Default 8."),
    ),
)

VERTEX = Group(
    "Vertex",
    (
        boolean(
            "allow-vertex-ai",
            "vertex.enabled",
            "Serve Vertex AI. Default true where AIP_MODE is PREDICTION, else false.",
        ),
        integer(
            "vertex-ai-port",
            "vertex.port",
            "Default AIP_HTTP_PORT, or 8080.",
            values.port,
        ),
        integer("vertex-ai-thread-count", "vertex.thread_count", "Default 8."),
        text(
            "vertex-ai-default-model",
            "vertex.default_model",
            "Model of requests that name none.",
        ),
    ),
)
