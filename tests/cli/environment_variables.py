"""The environment variables of the settings page: what reads each, and what it does."""

from __future__ import annotations

from typing import NamedTuple


class Variable(NamedTuple):
    """An environment variable: its form or default, the modules that read it, what it does."""

    name: str
    value: str
    readers: tuple[str, ...]
    effect: str


_TRACING = ("cli/tracing.py",)
_COLLECTOR = ("cli/tracing.py", "tracing/model_environment.py")
_SDK = ("tracing/otlp.py",)
_CLOUDS = ("models/remote/credentials.py",)

READ = (
    Variable(
        "AIP_HEALTH_ROUTE",
        "path",
        ("gateway/clouds/vertex.py",),
        "Where the Vertex AI endpoint tells whether it is ready; needed there.",
    ),
    Variable("AIP_HTTP_PORT", "port", ("cli/arguments.py",), "As `--vertex-ai-port`."),
    Variable(
        "AIP_MODE",
        "`PREDICTION`",
        ("cli/arguments.py",),
        "As `--allow-vertex-ai=true --allow-http=false --allow-grpc=false`.",
    ),
    Variable(
        "AIP_PREDICT_ROUTE",
        "path",
        ("gateway/clouds/vertex.py",),
        "Where the Vertex AI endpoint takes predictions; needed there.",
    ),
    Variable(
        "AIP_STORAGE_URI",
        "folder",
        ("cli/arguments.py",),
        "The model repository, where `--model-repository` is not given.",
    ),
    Variable(
        "AWS_ACCESS_KEY_ID",
        "key",
        _CLOUDS,
        "Key of `s3://` repositories.",
    ),
    Variable(
        "AWS_CONFIG_FILE",
        "file",
        _CLOUDS,
        "In place of `~/.aws/config`.",
    ),
    Variable(
        "AWS_DEFAULT_REGION",
        "region",
        _CLOUDS,
        "Region of `s3://` repositories.",
    ),
    Variable(
        "AWS_ENDPOINT_URL_S3",
        "URL",
        _CLOUDS,
        "Store of `s3://` repositories without a host in their address.",
    ),
    Variable(
        "AWS_PROFILE",
        "name",
        _CLOUDS,
        "Profile in `~/.aws` for `s3://` repositories; it counts before keys.",
    ),
    Variable(
        "AWS_REGION",
        "region",
        _CLOUDS,
        "As `AWS_DEFAULT_REGION`, which counts first.",
    ),
    Variable(
        "AWS_SECRET_ACCESS_KEY",
        "key",
        _CLOUDS,
        "Secret of `AWS_ACCESS_KEY_ID`.",
    ),
    Variable(
        "AWS_SESSION_TOKEN",
        "token",
        _CLOUDS,
        "Token of `AWS_ACCESS_KEY_ID`, for keys that expire.",
    ),
    Variable(
        "AWS_SHARED_CREDENTIALS_FILE",
        "file",
        _CLOUDS,
        "In place of `~/.aws/credentials`.",
    ),
    Variable(
        "AWS_SKIP_SIGNATURE",
        "`true`",
        _CLOUDS,
        "Requests to `s3://` repositories are not signed: for a public bucket.",
    ),
    Variable(
        "AZURE_STORAGE_ACCOUNT",
        "name",
        _CLOUDS,
        "Account that `AZURE_STORAGE_KEY` is of.",
    ),
    Variable(
        "AZURE_STORAGE_AUTH_TYPE",
        "`key`, `managed_identity`, `default`",
        _CLOUDS,
        "Credentials of `as://` repositories.",
    ),
    Variable(
        "AZURE_STORAGE_CLIENT_ID",
        "id",
        _CLOUDS,
        "Identity of `as://` repositories, unless they have a key.",
    ),
    Variable(
        "AZURE_STORAGE_CONNECTION_STRING",
        "text",
        _CLOUDS,
        "Account, key and endpoint of `as://` repositories.",
    ),
    Variable(
        "AZURE_STORAGE_ENDPOINT",
        "URL",
        _CLOUDS,
        "Store of `as://` repositories.",
    ),
    Variable(
        "AZURE_STORAGE_KEY",
        "key",
        _CLOUDS,
        "Key of `as://` repositories.",
    ),
    Variable(
        "CUDA_VISIBLE_DEVICES",
        "numbers or names",
        (
            "models/config/gpus.py",
            "system/nvml.py",
            "backends/language_model/visible_gpu.py",
        ),
        "The GPUs that instances may have and that metrics are of.",
    ),
    Variable("CXX", "`g++`", ("backends/vllm/engine.py",), "Compiler that vLLM on a CPU needs."),
    Variable(
        "LLM_CONFIG_PATH",
        "`model.yaml`, `model.json`",
        ("backends/tensorrt_llm/settings.py",),
        "The file with a TensorRT-LLM model's settings, from its version's folder or absolute.",
    ),
    Variable(
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "spans",
        _TRACING,
        "As `opentelemetry,bsp_max_export_batch_size`, which counts first.",
    ),
    Variable(
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "spans",
        _TRACING,
        "As `opentelemetry,bsp_max_queue_size`, which counts first.",
    ),
    Variable(
        "OTEL_BSP_SCHEDULE_DELAY",
        "ms",
        _TRACING,
        "As `opentelemetry,bsp_schedule_delay`, which counts first.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "URL",
        _COLLECTOR,
        "Switches the export of traces on, where no flag chooses the mode; the collector.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "`http/protobuf`",
        _TRACING,
        "As `opentelemetry,protocol`, which counts first.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "seconds",
        ("backends/vllm/own_spans.py",),
        "How long one export may take; the exporters read it too.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "URL",
        _COLLECTOR,
        "As `OTEL_EXPORTER_OTLP_ENDPOINT`, and counts before it.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "`http/protobuf`",
        _TRACING,
        "As `OTEL_EXPORTER_OTLP_PROTOCOL`, and counts before it.",
    ),
    Variable(
        "OTEL_RESOURCE_ATTRIBUTES",
        "`key=value,...`",
        ("backends/vllm/own_spans.py",),
        "Attributes of the resource of spans; without `service.name`, vLLM's are `vllm`'s.",
    ),
    Variable(
        "OTEL_SDK_DISABLED", "`true`", _TRACING, "Switches OpenTelemetry off, whatever flags say."
    ),
    Variable(
        "OTEL_TRACES_EXPORTER",
        "`otlp` or `none`",
        _TRACING,
        "Switches the export of traces on or off, where no flag chooses the mode.",
    ),
    Variable(
        "OTEL_TRACES_SAMPLER",
        "a sampler's name",
        _TRACING,
        "As `opentelemetry,sampler`, which counts first.",
    ),
    Variable(
        "OTEL_TRACES_SAMPLER_ARG",
        "0.0 to 1.0",
        _TRACING,
        "As `opentelemetry,ratio`, which counts first.",
    ),
    Variable(
        "PENSTOCK_CACHE",
        "`~/.cache/penstock`",
        ("backends/python/environment/environment.py",),
        "Folder of the environments that Python models bring.",
    ),
    Variable(
        "PENSTOCK_IMAGE_ENGINE",
        "set by the image",
        ("core/errors.py",),
        "What the image was built with, for the message about an engine that it lacks.",
    ),
    Variable(
        "PENSTOCK_MODEL_ENV",
        "`NAME,BEGINNING*`",
        ("system/model_variables.py",),
        "As `--model-env`: variables that model processes get besides those of the allow-list.",
    ),
    Variable(
        "PENSTOCK_OTLP_TRACES_ENDPOINT",
        "set by the server",
        ("backends/vllm/own_spans.py",),
        "In model processes: the collector that the server exports traces to.",
    ),
    Variable(
        "PENSTOCK_OTLP_TRACES_PROTOCOL",
        "set by the server",
        ("backends/vllm/own_spans.py",),
        "In model processes: how it is spoken to.",
    ),
    Variable(
        "PENSTOCK_SHARED_TMPDIR",
        "set by the server",
        ("backends/vllm/arguments/engine_args.py",),
        "In model processes: the folder for files that outlast one, such as compiled kernels.",
    ),
    Variable(
        "PENSTOCK_URL",
        "`localhost:8001`",
        ("client/reading/address.py",),
        "Of all commands of clients: the addresses of servers, between spaces; `perf`, `top` and"
        " `tune` ask the first.",
    ),
    Variable(
        "SAGEMAKER_BIND_TO_PORT",
        "port",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--sagemaker-port`.",
    ),
    Variable(
        "SAGEMAKER_MULTI_MODEL",
        "`true`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: models come and go by requests of the service.",
    ),
    Variable(
        "SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING",
        "`true`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: without `--model-namespacing`, which it switches on.",
    ),
    Variable(
        "SAGEMAKER_SAFE_PORT_RANGE",
        "`FROM-TO`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--sagemaker-safe-port-range`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT",
        "number",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--buffer-manager-thread-count`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
        "model",
        (
            "cli/sagemaker.py",
            "gateway/clouds/sagemaker.py",
        ),
        "The model of `/invocations` on the SageMaker endpoint.",
    ),
    Variable(
        "SAGEMAKER_TRITON_INFERENCE_TYPE",
        "`infer`, `generate`, `generate_stream`",
        ("gateway/clouds/sagemaker.py",),
        "What `/invocations` is there.",
    ),
    Variable(
        "SAGEMAKER_TRITON_LOG_ERROR",
        "`true`, `false`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--log-error`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_LOG_INFO",
        "`true`, `false`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--log-info`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_LOG_VERBOSE",
        "`true`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--log-verbose`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_LOG_WARNING",
        "`true`, `false`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--log-warning`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT",
        "fraction",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--model-load-gpu-limit`, for each GPU.",
    ),
    Variable(
        "SAGEMAKER_TRITON_PING_MODE",
        "`ready`, `live`",
        ("gateway/clouds/sagemaker.py",),
        "What `/ping` tells there.",
    ),
    Variable(
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE",
        "`16777216`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--backend-config=python,shm-default-byte-size`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE",
        "`1048576`",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--backend-config=python,shm-growth-byte-size`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_TENSORFLOW_VERSION",
        "number",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--backend-config=tensorflow,version`.",
    ),
    Variable(
        "SAGEMAKER_TRITON_THREAD_COUNT",
        "number",
        ("cli/sagemaker.py",),
        "Of `penstock sagemaker`: as `--sagemaker-thread-count`.",
    ),
    Variable(
        "TRITONCACHE_REDIS_PASSWORD",
        "text",
        ("caching/redis_settings.py",),
        "As `--cache-config redis,password=`, which counts first.",
    ),
    Variable(
        "TRITONCACHE_REDIS_USERNAME",
        "text",
        ("caching/redis_settings.py",),
        "As `--cache-config redis,user=`, which counts first.",
    ),
    Variable(
        "TRITONSERVER_BACKLOG_DELAY_SCHEDULER",
        "number",
        ("scheduling/first_batch.py",),
        "For tests: with the next one, how many requests without a slot the first batch awaits.",
    ),
    Variable(
        "TRITONSERVER_DELAY_SCHEDULER",
        "number",
        ("scheduling/first_batch.py",),
        "For tests: how many requests the first batch awaits.",
    ),
    Variable(
        "TRITON_PARALLEL_INSTANCE_LOADING",
        "`0`",
        ("models/loading/build_version.py",),
        "0 starts the instances of a model one after the other.",
    ),
    Variable(
        "STORAGE_EMULATOR_HOST",
        "URL",
        _CLOUDS,
        "Store of `gs://` repositories, which is asked without credentials.",
    ),
    Variable(
        "TRITON_CLOUD_CREDENTIAL_PATH",
        "file",
        _CLOUDS,
        "Credentials of [repositories elsewhere](../repositories.md), by prefixes of addresses.",
    ),
    Variable(
        "TRITON_SERVER_CPU_ONLY",
        "any value",
        ("cli/arguments.py", "in_process/options.py"),
        "As `--cpu-only`: no GPU is used, and none is measured.",
    ),
    Variable(
        "TRITON_SERVER_ESCAPE_LOG_MESSAGES",
        "`0`",
        ("cli/arguments.py",),
        "0 writes messages of the log's text forms as they are.",
    ),
    Variable(
        "XDG_CACHE_HOME",
        "`~/.cache`",
        ("app/core.py", "backends/python/environment/environment.py"),
        "Where `penstock` is the folder above, if `PENSTOCK_CACHE` is not set; and where measured"
        " sizes of models are kept.",
    ),
)
"""Variables that our own code reads."""

BY_LIBRARIES = (
    Variable(
        "OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME",
        "`key=value,...`",
        _SDK,
        "Attributes of the resource that spans are of, by OpenTelemetry's detector.",
    ),
    Variable(
        "OTEL_EXPORTER_OTLP_* (headers, timeout, compression, certificates)",
        "as specified",
        _SDK,
        "How the collector is reached, by OpenTelemetry's exporters.",
    ),
    Variable(
        "TMPDIR",
        "`/tmp`",
        ("system/private_tmp.py",),
        "Where temporary folders of model processes are, by Python's `tempfile`.",
    ),
    Variable(
        "GRPC_EXPERIMENTS, GRPC_VERBOSITY",
        "`-event_engine_listener`, `NONE`",
        ("rpc/grpcio/transport.py",),
        "Of grpcio, set for `--grpc-transport=grpcio` unless they are given.",
    ),
    Variable(
        "VLLM_NO_USAGE_STATS, VLLM_CPU_KVCACHE_SPACE, VLLM_WORKER_MULTIPROC_METHOD,"
        " HF_HUB_OFFLINE, TORCHINDUCTOR_CACHE_DIR, TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS",
        "see the module",
        ("backends/vllm/arguments/engine_args.py",),
        "Of vLLM and its libraries, set in its processes unless they are given.",
    ),
    Variable(
        "TRTLLM_VISIBLE_DEVICES, OMPI_*, PMIX_*, PMI_*",
        "see the module",
        ("backends/tensorrt_llm/environment.py",),
        "Of TensorRT-LLM and MPI: set, or taken away, in the processes of its models.",
    ),
    Variable(
        "AWS_*, AZURE_*, GOOGLE_APPLICATION_CREDENTIALS, HF_*, TRITON_AWS_MOUNT_DIRECTORY,"
        " TRITON_GCS_MOUNT_DIRECTORY, TRITON_AZURE_MOUNT_DIRECTORY",
        "see the page",
        ("models/remote/credentials.py", "models/remote/remote_repositories.py"),
        "Credentials and folders of [repositories elsewhere](../repositories.md).",
    ),
)
"""Variables that libraries read, where our code depends on it or sets them."""
