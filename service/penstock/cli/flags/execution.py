"""Options of backends, response caches, rate limits and devices."""

from __future__ import annotations

from penstock.cli import compound, values
from penstock.cli.flags.flag import (
    Flag,
    Group,
    all_of_each,
    boolean,
    by_key,
    by_name,
    decimal,
    each,
    integer,
    switch,
    text,
)

BACKEND = Group(
    "Backend",
    (
        text(
            "backend-directory",
            "backends.directory",
            "Directory of backends made of a model.py: <directory>/<backend>/model.py. "
            "Default none.",
        ),
        Flag(
            "backend-config",
            "string>,<string>=<string",
            compound.backend_config,
            "backends.config",
            "A setting for one backend; without <backend>, for all of them. Repeatable.",
            by_name,
        ),
        boolean(
            "allow-media-urls",
            "backends.media_urls",
            "Fetch images, audio and video that requests name by http: and https: URLs: true from "
            "any public address, false from nowhere. Without it from the hosts alone that a model "
            "names. data: URLs are always taken.",
        ),
        Flag(
            "model-env",
            "string",
            values.variable_names,
            "backends.model_env",
            "Environment variables that model processes get besides those of the allow-list "
            "(docs/python-models.md): <name>[,<name>], * at the end for a beginning, * alone for "
            "all. Repeatable.",
            all_of_each,
        ),
    ),
)

AGENT = Group(
    "Repository Agent",
    (
        text(
            "repoagent-directory",
            "repository.agent_directory",
            "Directory of repository agents. Default /opt/tritonserver/repoagents.",
        ),
    ),
)

CACHE = Group(
    "Response Cache",
    (
        Flag(
            "cache-config",
            "string>,<string>=<string",
            compound.cache_config,
            "cache.config",
            "A setting of a response cache, which turns it on: local,size=<bytes>. Repeatable.",
            by_name,
        ),
        text(
            "cache-directory",
            "cache.directory",
            "Directory of caches. Default /opt/tritonserver/caches.",
        ),
    ),
)

RATE_LIMITER = Group(
    "Rate Limiter",
    (
        text(
            "rate-limit",
            "rate_limit.mode",
            '"execution_count": instances wait for the resources they declare and take turns '
            'by priority. "off": no limit. Default "off".',
            values.one_of("rate-limit", "execution_count", "off"),
        ),
        Flag(
            "rate-limit-resource",
            "string>:<integer>:<integer",
            compound.rate_limit_resource,
            "rate_limit.resources",
            "Amount of a resource: <name>:<count>[:<device>]. Repeatable. Default: "
            "the largest amount that one instance declares.",
            each,
        ),
    ),
)

DEVICES = Group(
    "Memory/Device Management",
    (
        integer(
            "pinned-memory-pool-byte-size",
            "devices.pinned_memory_pool_byte_size",
            "Pinned host memory. Default 268435456.",
            values.big_integer,
        ),
        Flag(
            "cuda-memory-pool-byte-size",
            "integer>:<integer",
            values.pair(values.integer, values.big_integer),
            "devices.cuda_memory_pool_byte_size",
            "<gpu>:<bytes> of device memory kept for copies. Repeatable. Default 67108864 each.",
            by_key,
        ),
        Flag(
            "cuda-virtual-address-size",
            "integer>:<integer",
            values.pair(values.integer, values.big_integer),
            "devices.cuda_virtual_address_size",
            "<gpu>:<bytes>: largest size of a growing state. Repeatable. Default 1 GiB each.",
            by_key,
        ),
        decimal(
            "min-supported-compute-capability",
            "devices.min_supported_compute_capability",
            "GPUs of a lower compute capability are not used. Default 6.0.",
        ),
        switch(
            "cpu-only",
            "devices.cpu_only",
            "Use no GPU: instance groups of kind KIND_GPU are served on the CPU, with a warning, as"
            " with TRITON_SERVER_CPU_ONLY in the environment.",
        ),
        integer(
            "buffer-manager-thread-count",
            "devices.buffer_manager_thread_count",
            "Threads that copy tensors. Default 0.",
        ),
        Flag(
            "host-policy",
            "string>,<string>=<string",
            compound.host_policy,
            "devices.host_policies",
            "Placement by policy: <policy>,numa-node=<n> or <policy>,cpu-cores=<a>-<b>. "
            "Repeatable.",
            by_name,
        ),
        Flag(
            "model-load-gpu-limit",
            "device_id>:<fraction",
            compound.load_limit,
            "devices.load_limits",
            "Load no model on a GPU whose used memory exceeds this fraction. Repeatable.",
            by_key,
        ),
        Flag(
            "memory-budget",
            "size|device=size,...",
            compound.memory_budget,
            "devices.memory_budget",
            "Memory that all models may take together, in bytes or like 48GiB, or by device, as "
            "host=48GiB,gpu=0.9,gpu:1=20GiB with shares: a model whose estimate (docs/plan.md) "
            "does not fit into what is left is refused before it starts. Default: no limit.",
        ),
        text(
            "measured-sizes",
            "devices.sizes_file",
            "File that keeps, across restarts, what models were found to take of the memory budget "
            "in mode demand. off: they count as estimated. Default: "
            "~/.cache/penstock/measured-sizes.json.",
        ),
    ),
)
