"""The table of the options of `penstock serve`: name, value parser, field of `Settings`, help."""

from penstock.cli.flags.deprecated import DEPRECATED
from penstock.cli.flags.execution import AGENT, BACKEND, CACHE, DEVICES, RATE_LIMITER
from penstock.cli.flags.flag import Flag
from penstock.cli.flags.grpc_endpoint import GRPC
from penstock.cli.flags.http_endpoints import HTTP, SAGEMAKER, SHARED_MEMORY, VERTEX
from penstock.cli.flags.observability import METRICS, TRACING
from penstock.cli.flags.openai_endpoint import OPENAI
from penstock.cli.flags.server import LOGGING, REPOSITORY, SERVER
from penstock.cli.flags.sources import SOURCES

GROUPS = (
    SERVER,
    LOGGING,
    REPOSITORY,
    SOURCES,
    HTTP,
    OPENAI,
    GRPC,
    SHARED_MEMORY,
    SAGEMAKER,
    VERTEX,
    METRICS,
    TRACING,
    BACKEND,
    AGENT,
    CACHE,
    RATE_LIMITER,
    DEVICES,
    DEPRECATED,
)

FLAGS: dict[str, Flag] = {flag.name: flag for group in GROUPS for flag in group.flags}
