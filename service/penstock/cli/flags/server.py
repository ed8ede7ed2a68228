"""Options of the server itself, its log and its model repository."""

from __future__ import annotations

from penstock.cli import values
from penstock.cli.flags.flag import Flag, Group, boolean, decimal, integer, once_each, switch, text
from penstock.settings import ModelControlMode

SERVER = Group(
    "Server",
    (
        text("id", "id", 'Name of this server in its metadata. Default "triton".'),
        switch(
            "secure",
            "secure",
            "Harden the server: what has neither TLS nor secrets for all calls but health and "
            "metadata listens on this machine alone; nothing is uploaded, no settings are "
            "written, no media fetched, no services described. Options that contradict it are "
            "refused (docs/security.md).",
        ),
        integer(
            "exit-timeout-secs",
            "exit_timeout_seconds",
            "How long a stopping server waits for requests in flight. Default 30.",
        ),
        integer(
            "max-pending-requests",
            "max_pending_requests",
            "Requests of one model version that may wait for an instance, beside what its queue "
            "policy allows; further ones are rejected. 0: any number. Default 65536.",
        ),
        integer(
            "spare-processes",
            "spare_processes",
            "Model processes of Python that are kept started before there is a model for them, so "
            "that a load or a restart is quicker. Default 1.",
            values.not_negative("spare-processes"),
        ),
        integer(
            "request-memory-pool-byte-size",
            "request_memory_pool_byte_size",
            "Bytes that the bodies of all requests in flight may take together, over HTTP and gRPC;"
            " beyond, no more is read of incomplete ones. Default 0: a quarter of the memory that"
            " the process may use.",
            values.not_negative("request-memory-pool-byte-size", values.big_integer),
        ),
        integer(
            "max-bytes-elements",
            "max_bytes_elements",
            "The most elements of a BYTES tensor in a request that comes over the network. "
            "Default 1048576.",
            values.at_least("max-bytes-elements", 1),
        ),
        boolean(
            "allow-engine-control",
            "engine_control",
            "Let HTTP requests put engines to sleep, pause them, reset their caches, and add and "
            "remove adapters. Default false.",
        ),
        boolean(
            "allow-model-upload",
            "model_upload",
            "Let load requests of clients bring the files of a model (file: parameters), code "
            "included. Default false: only calls that a restriction of model-repository has let "
            "through may.",
        ),
        boolean(
            "allow-log-control",
            "log_control",
            "Let every client change the settings of the log. Default false: only calls that a "
            "restriction of the group logging has let through may.",
        ),
        text(
            "access-policy",
            "access_policy",
            "Ask a policy who may make which calls of which models: a TOML file with callers, the "
            "hashes of their keys, and rules (docs/access.md). It is watched; a wrong new file "
            "leaves the old policy in force.",
        ),
        text(
            "tenants",
            "tenants",
            "Share language models fairly between tenants; a JSON file with their weights "
            "(docs/admission.md).",
        ),
        text(
            "tenant-header",
            "tenant_header",
            "The header, or metadata, that names the tenant of a request without an API key and "
            "without a fairness id that is trusted. Needs --tenants.",
        ),
        boolean(
            "trust-fairness-id",
            "trust_fairness_id",
            "The header x-gateway-inference-fairness-id names the tenant of a request without an "
            "API key: a gateway sets it, and takes it away from what clients send. Needs "
            "--tenants. Default false.",
        ),
    ),
)

LOGGING = Group(
    "Logging",
    (
        integer(
            "log-verbose",
            "logging.verbose",
            "Level of detail; 0 is off.",
            values.verbosity,
        ),
        boolean("log-info", "logging.info", "Log information messages. Default true."),
        boolean("log-warning", "logging.warning", "Log warnings. Default true."),
        boolean("log-error", "logging.error", "Log errors. Default true."),
        text(
            "log-format",
            "logging.format",
            'Start of a line: "default" (LMMDD hh:mm:ss.ssssss) or "ISO8601" '
            '(YYYY-MM-DDThh:mm:ssZ L); or "json", a JSON object on each line.',
            values.one_of("log-format", "default", "ISO8601", "json", fold=False),
        ),
        text("log-file", "logging.file", "Write the log to this file, and not to the console."),
        text(
            "log-stream",
            "logging.stream",
            'Standard streams: "split" (information to standard output, warnings and errors to '
            'standard error), or all of the process, its models\' prints included, to "stdout" or '
            'to "stderr". Default "split".',
            values.one_of("log-stream", "split", "stdout", "stderr", fold=False),
        ),
        text(
            "access-log",
            "logging.access",
            "Write a line for each finished HTTP request and gRPC call to this file, or to "
            'standard output for "-". Default "off".',
            values.access_log,
        ),
        text(
            "audit-log",
            "logging.audit",
            "Write a line of JSON for each call that changes the server, each refusal, and each "
            "change of the access policy or a certificate to this file, or to standard output for "
            '"-". Default "off".',
            values.audit_log,
        ),
        Flag(
            "audit-log-max-bytes",
            "integer",
            values.not_negative("audit-log-max-bytes", values.big_integer),
            "logging.audit_max_bytes",
            "Bytes of the file of the audit log from which on another is begun; four older ones "
            "are kept. 0: never. Default 67108864.",
        ),
    ),
)

REPOSITORY = Group(
    "Model Repository",
    (
        Flag(
            "model-store",
            "string",
            values.text,
            "repository.paths",
            "The same as --model-repository.",
            once_each,
        ),
        Flag(
            "model-repository",
            "string",
            values.text,
            "repository.paths",
            "Directory of models, or s3://, gs:// and as:// addresses; required. Repeatable: a "
            "model found in two of them is served from neither.",
            once_each,
        ),
        boolean(
            "exit-on-error",
            "repository.exit_on_error",
            "Do not start when a model fails to load. Default true.",
        ),
        Flag(
            "disable-auto-complete-config",
            "",
            values.text,
            "",
            "Use configurations as written; backends do not complete them.",
        ),
        boolean(
            "strict-readiness",
            "repository.strict_readiness",
            "The server is ready only while all models are. Default true.",
        ),
        text(
            "model-control-mode",
            "repository.control_mode",
            '"none": load everything at start. "poll": follow changes of the repository. '
            '"explicit": load the models that --load-model names, then those that clients request. '
            '"demand": load a model when it is called first. Default "none".',
            values.member_of(ModelControlMode, "model-control-mode"),
        ),
        integer(
            "repository-poll-secs",
            "repository.poll_seconds",
            "Seconds between polls of the repository in modes poll and demand. Default 15.",
        ),
        decimal(
            "demand-load-timeout-secs",
            "repository.demand_timeout",
            "Seconds that a call waits at most for the load of its model in mode demand. "
            "Default 300.",
        ),
        Flag(
            "load-model",
            "string",
            values.text,
            "repository.startup_models",
            "Model to load at start in modes explicit and demand. Repeatable; * alone means all.",
            once_each,
        ),
        text(
            "model-config-name",
            "repository.config_name",
            "Read configs/<name>.pbtxt of a model rather than config.pbtxt where it exists.",
            values.model_config_name,
        ),
        integer(
            "model-load-thread-count",
            "repository.load_thread_count",
            "Models loaded at the same time. Default 4.",
        ),
        integer(
            "model-load-retry-count",
            "repository.load_retry_count",
            "Further attempts to load a model that failed. Default 0.",
        ),
        text(
            "repository-cache-dir",
            "repository.cache_dir",
            "Directory that keeps what was fetched from addresses of repositories; processes may "
            "share it. Default ~/.cache/penstock/repository.",
        ),
        integer(
            "repository-cache-byte-size",
            "repository.cache_size",
            "Bytes that it keeps at most, besides what is in use. Default 0, no limit.",
            values.at_least("repository-cache-byte-size", 0),
        ),
        boolean(
            "allow-unsafe-models",
            "backends.unsafe_models",
            "Load files that may run code while they are read: pickles, such as whole modules of "
            "torch.save. Default false: they are refused.",
        ),
        text(
            "model-signature-key",
            "repository.signature_key",
            "File of a public key of an elliptic curve, or of certificates (PEM): load only models "
            "whose folder has a model.sig of OpenSSF model signing by its owner. Needs the extra "
            "signing.",
        ),
        boolean(
            "model-namespacing",
            "repository.namespacing",
            "Allow models of the same name in different repositories. Default false.",
        ),
        boolean(
            "enable-peer-access",
            "devices.peer_access",
            "Let GPUs read each other's memory where they can. Default true.",
        ),
    ),
)
