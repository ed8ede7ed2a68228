"""Deprecated options, which still work and warn."""

from __future__ import annotations

from penstock.cli import compound, tracing, values
from penstock.cli.flags.flag import Flag, Group, by_name, integer, text


def deprecated_trace(flag: Flag, instead: str) -> Flag:
    warning = (
        f"Warning: '--{flag.name}' has been deprecated and will be removed in future releases. "
        f"Please use '--trace-config {instead} instead."
    )
    return Flag(flag.name, flag.argument, flag.parse, "", flag.help, warning=warning)


DEPRECATED = Group(
    "DEPRECATED",
    (
        Flag(
            "strict-model-config",
            "boolean",
            values.boolean,
            "",
            "Use --disable-auto-complete-config.",
            warning="Warning: '--strict-model-config' has been deprecated! "
            "Please use '--disable-auto-complete-config' instead.",
        ),
        Flag(
            "response-cache-byte-size",
            "integer",
            compound.cache_size,
            "cache.config",
            "Use --cache-config local,size=<bytes>.",
            by_name,
            warning="Warning: '--response-cache-byte-size' has been deprecated! This will "
            "default to the 'local' cache implementation with the provided byte size for its "
            "config. Please use '--cache-config' instead. The equivalent --cache-config CLI "
            "args would be: '--cache-config=local,size={value}'",
        ),
        deprecated_trace(
            text("trace-file", "", "Use --trace-config triton,file=<path>."),
            "triton,file=<filepath>",
        ),
        deprecated_trace(
            text("trace-level", "", "Use --trace-config level=<level>.", tracing.trace_level),
            "level=<OFF|TIMESTAMPS|TENSORS>",
        ),
        deprecated_trace(
            integer("trace-rate", "", "Use --trace-config rate=<n>.", tracing.unsigned),
            "rate=<rate value>",
        ),
        deprecated_trace(
            integer("trace-count", "", "Use --trace-config count=<n>."), "count=<count value>"
        ),
        deprecated_trace(
            integer(
                "trace-log-frequency",
                "",
                "Use --trace-config triton,log-frequency=<n>.",
                tracing.unsigned,
            ),
            "triton,log-frequency=<log frequency value>",
        ),
    ),
)
