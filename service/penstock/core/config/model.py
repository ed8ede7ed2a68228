"""`ModelConfig`: the configuration of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.config.instances import InstanceGroup
from penstock.core.config.optimization import Optimization
from penstock.core.config.scheduling import DynamicBatching, EnsembleScheduling, SequenceBatching
from penstock.core.config.schema import ConfigPart, Int32, Int64, UInt32
from penstock.core.config.tensors import BatchInput, BatchOutput, ModelInput, ModelOutput
from penstock.core.tensor import DataType


@dataclass(frozen=True, slots=True)
class LatestVersions(ConfigPart):
    """The highest version numbers."""

    num_versions: UInt32 = 0


@dataclass(frozen=True, slots=True)
class AllVersions(ConfigPart):
    """Every version found."""


@dataclass(frozen=True, slots=True)
class SpecificVersions(ConfigPart):
    """The listed versions only."""

    versions: tuple[Int64, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionPolicy(ConfigPart):
    """Which of the versions in the repository are served."""

    ONEOFS = (("latest", "all", "specific"),)

    latest: LatestVersions | None = None
    all: AllVersions | None = None
    specific: SpecificVersions | None = None


@dataclass(frozen=True, slots=True)
class Parameter(ConfigPart):
    """The value of an entry of `parameters`."""

    string_value: str = ""


@dataclass(frozen=True, slots=True)
class WarmupInput(ConfigPart):
    """One input tensor of a warmup request, and the source of its values."""

    ONEOFS = (("zero_data", "random_data", "input_data_file"),)

    data_type: DataType | None = None
    dims: tuple[Int64, ...] = ()
    zero_data: bool | None = None
    random_data: bool | None = None
    input_data_file: str | None = None


@dataclass(frozen=True, slots=True)
class Warmup(ConfigPart):
    """A synthetic request that is run before the model becomes ready."""

    name: str = ""
    batch_size: UInt32 = 0
    inputs: Mapping[str, WarmupInput] = field(default_factory=dict)
    count: UInt32 = 0


@dataclass(frozen=True, slots=True)
class Operations(ConfigPart):
    """Libraries of custom operators."""

    op_library_filename: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionPolicy(ConfigPart):
    """Number of responses to a request: one, or any number when decoupled."""

    decoupled: bool = False


@dataclass(frozen=True, slots=True)
class RepositoryAgent(ConfigPart):
    """A plugin that processes the model's files before they are loaded."""

    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepositoryAgents(ConfigPart):
    """Repository agents, in order of invocation."""

    agents: tuple[RepositoryAgent, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelResponseCache(ConfigPart):
    """Whether the response cache serves repeated requests."""

    enable: bool = False


@dataclass(frozen=True, slots=True)
class MetricIdentifier(ConfigPart):
    """Names a metric by its family."""

    family: str = ""


@dataclass(frozen=True, slots=True)
class HistogramOptions(ConfigPart):
    """Upper bounds of a histogram's buckets, rising."""

    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricControl(ConfigPart):
    """An override of one metric's options."""

    metric_identifier: MetricIdentifier | None = None
    histogram_options: HistogramOptions | None = None


@dataclass(frozen=True, slots=True)
class ModelMetrics(ConfigPart):
    """Overrides of the model's metrics."""

    metric_control: tuple[MetricControl, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig(ConfigPart):
    """The configuration of one model; field names are those of `config.pbtxt`."""

    ONEOFS = (("dynamic_batching", "sequence_batching", "ensemble_scheduling"),)

    name: str = ""
    platform: str = ""
    backend: str = ""
    runtime: str = ""
    version_policy: VersionPolicy | None = None
    max_batch_size: Int32 = 0
    input: tuple[ModelInput, ...] = ()
    output: tuple[ModelOutput, ...] = ()
    batch_input: tuple[BatchInput, ...] = ()
    batch_output: tuple[BatchOutput, ...] = ()
    optimization: Optimization | None = None
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    ensemble_scheduling: EnsembleScheduling | None = None
    instance_group: tuple[InstanceGroup, ...] = ()
    default_model_filename: str = ""
    cc_model_filenames: Mapping[str, str] = field(default_factory=dict)
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    model_warmup: tuple[Warmup, ...] = ()
    model_operations: Operations | None = None
    model_transaction_policy: TransactionPolicy | None = None
    model_repository_agents: RepositoryAgents | None = None
    response_cache: ModelResponseCache | None = None
    model_metrics: ModelMetrics | None = None
    inputs_by_name: Mapping[str, ModelInput] = field(init=False, repr=False, compare=False)
    outputs_by_name: Mapping[str, ModelOutput] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ConfigPart.__post_init__(self)
        # Looked up in every request, so computed once.
        object.__setattr__(self, "inputs_by_name", {tensor.name: tensor for tensor in self.input})
        object.__setattr__(self, "outputs_by_name", {tensor.name: tensor for tensor in self.output})

    @property
    def decoupled(self) -> bool:
        """Whether a request may get any number of responses."""
        policy = self.model_transaction_policy
        return policy is not None and policy.decoupled

    @property
    def is_ensemble(self) -> bool:
        """Whether the model is a graph of other models and has no backend of its own."""
        return self.platform == "ensemble"

    def parameter(self, name: str) -> str | None:
        """The value of an entry of `parameters`; `None` without it."""
        found = self.parameters.get(name)
        return None if found is None else found.string_value
