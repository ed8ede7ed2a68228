from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AliasTarget(_message.Message):
    __slots__ = ("model", "version", "weight")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    weight: float
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class AliasGuard(_message.Message):
    __slots__ = ("min_requests", "max_error_rate", "max_p99_ratio", "window")
    MIN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_P99_RATIO_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    min_requests: int
    max_error_rate: float
    max_p99_ratio: float
    window: float
    def __init__(self, min_requests: _Optional[int] = ..., max_error_rate: _Optional[float] = ..., max_p99_ratio: _Optional[float] = ..., window: _Optional[float] = ...) -> None: ...

class ShadowComparison(_message.Message):
    __slots__ = ("rtol", "atol", "labels", "contents")
    RTOL_FIELD_NUMBER: _ClassVar[int]
    ATOL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    rtol: float
    atol: float
    labels: _containers.RepeatedScalarFieldContainer[str]
    contents: bool
    def __init__(self, rtol: _Optional[float] = ..., atol: _Optional[float] = ..., labels: _Optional[_Iterable[str]] = ..., contents: bool = ...) -> None: ...

class AliasShadow(_message.Message):
    __slots__ = ("model", "version", "percent", "compare")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    percent: float
    compare: ShadowComparison
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., percent: _Optional[float] = ..., compare: _Optional[_Union[ShadowComparison, _Mapping]] = ...) -> None: ...

class AliasDefinition(_message.Message):
    __slots__ = ("targets", "sticky", "guard", "shadow")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    STICKY_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[AliasTarget]
    sticky: str
    guard: AliasGuard
    shadow: AliasShadow
    def __init__(self, targets: _Optional[_Iterable[_Union[AliasTarget, _Mapping]]] = ..., sticky: _Optional[str] = ..., guard: _Optional[_Union[AliasGuard, _Mapping]] = ..., shadow: _Optional[_Union[AliasShadow, _Mapping]] = ...) -> None: ...

class AliasListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AliasListResponse(_message.Message):
    __slots__ = ("aliases",)
    class Alias(_message.Message):
        __slots__ = ("name", "definition")
        NAME_FIELD_NUMBER: _ClassVar[int]
        DEFINITION_FIELD_NUMBER: _ClassVar[int]
        name: str
        definition: AliasDefinition
        def __init__(self, name: _Optional[str] = ..., definition: _Optional[_Union[AliasDefinition, _Mapping]] = ...) -> None: ...
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    aliases: _containers.RepeatedCompositeFieldContainer[AliasListResponse.Alias]
    def __init__(self, aliases: _Optional[_Iterable[_Union[AliasListResponse.Alias, _Mapping]]] = ...) -> None: ...

class AliasShowRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AliasSetRequest(_message.Message):
    __slots__ = ("name", "definition")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    definition: AliasDefinition
    def __init__(self, name: _Optional[str] = ..., definition: _Optional[_Union[AliasDefinition, _Mapping]] = ...) -> None: ...

class AliasRemoveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AliasRemoveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AliasPromoteRequest(_message.Message):
    __slots__ = ("name", "target", "steps", "every")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    name: str
    target: str
    steps: _containers.RepeatedScalarFieldContainer[float]
    every: float
    def __init__(self, name: _Optional[str] = ..., target: _Optional[str] = ..., steps: _Optional[_Iterable[float]] = ..., every: _Optional[float] = ...) -> None: ...

class AliasRollbackRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AliasWatchRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AliasWatchResponse(_message.Message):
    __slots__ = ("name", "change")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    change: AliasChange
    def __init__(self, name: _Optional[str] = ..., change: _Optional[_Union[AliasChange, _Mapping]] = ...) -> None: ...

class AliasChange(_message.Message):
    __slots__ = ("at", "why", "cause", "alias")
    AT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    at: float
    why: str
    cause: str
    alias: AliasDefinition
    def __init__(self, at: _Optional[float] = ..., why: _Optional[str] = ..., cause: _Optional[str] = ..., alias: _Optional[_Union[AliasDefinition, _Mapping]] = ...) -> None: ...

class AliasTimes(_message.Message):
    __slots__ = ("p50_ms", "p99_ms")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p99_ms: float
    def __init__(self, p50_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...

class AliasTraffic(_message.Message):
    __slots__ = ("target", "requests", "failed", "window")
    class Window(_message.Message):
        __slots__ = ("seconds", "requests", "failed", "p50_ms", "p99_ms")
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        REQUESTS_FIELD_NUMBER: _ClassVar[int]
        FAILED_FIELD_NUMBER: _ClassVar[int]
        P50_MS_FIELD_NUMBER: _ClassVar[int]
        P99_MS_FIELD_NUMBER: _ClassVar[int]
        seconds: float
        requests: int
        failed: int
        p50_ms: float
        p99_ms: float
        def __init__(self, seconds: _Optional[float] = ..., requests: _Optional[int] = ..., failed: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    target: str
    requests: int
    failed: int
    window: AliasTraffic.Window
    def __init__(self, target: _Optional[str] = ..., requests: _Optional[int] = ..., failed: _Optional[int] = ..., window: _Optional[_Union[AliasTraffic.Window, _Mapping]] = ...) -> None: ...

class AliasPromotion(_message.Message):
    __slots__ = ("target", "steps", "every", "step", "due_in", "needed")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    target: str
    steps: _containers.RepeatedScalarFieldContainer[float]
    every: float
    step: int
    due_in: float
    needed: int
    def __init__(self, target: _Optional[str] = ..., steps: _Optional[_Iterable[float]] = ..., every: _Optional[float] = ..., step: _Optional[int] = ..., due_in: _Optional[float] = ..., needed: _Optional[int] = ...) -> None: ...

class AliasShadowed(_message.Message):
    __slots__ = ("equal", "different", "failed", "dropped", "first", "second", "differing")
    class Differing(_message.Message):
        __slots__ = ("id", "at", "target", "difference", "first", "second")
        ID_FIELD_NUMBER: _ClassVar[int]
        AT_FIELD_NUMBER: _ClassVar[int]
        TARGET_FIELD_NUMBER: _ClassVar[int]
        DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
        FIRST_FIELD_NUMBER: _ClassVar[int]
        SECOND_FIELD_NUMBER: _ClassVar[int]
        id: str
        at: float
        target: str
        difference: str
        first: str
        second: str
        def __init__(self, id: _Optional[str] = ..., at: _Optional[float] = ..., target: _Optional[str] = ..., difference: _Optional[str] = ..., first: _Optional[str] = ..., second: _Optional[str] = ...) -> None: ...
    EQUAL_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_FIELD_NUMBER: _ClassVar[int]
    equal: int
    different: int
    failed: int
    dropped: int
    first: AliasTimes
    second: AliasTimes
    differing: _containers.RepeatedCompositeFieldContainer[AliasShadowed.Differing]
    def __init__(self, equal: _Optional[int] = ..., different: _Optional[int] = ..., failed: _Optional[int] = ..., dropped: _Optional[int] = ..., first: _Optional[_Union[AliasTimes, _Mapping]] = ..., second: _Optional[_Union[AliasTimes, _Mapping]] = ..., differing: _Optional[_Iterable[_Union[AliasShadowed.Differing, _Mapping]]] = ...) -> None: ...

class AliasShowResponse(_message.Message):
    __slots__ = ("name", "definition", "traffic", "promotion", "shadowed", "history")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    PROMOTION_FIELD_NUMBER: _ClassVar[int]
    SHADOWED_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    name: str
    definition: AliasDefinition
    traffic: _containers.RepeatedCompositeFieldContainer[AliasTraffic]
    promotion: AliasPromotion
    shadowed: AliasShadowed
    history: _containers.RepeatedCompositeFieldContainer[AliasChange]
    def __init__(self, name: _Optional[str] = ..., definition: _Optional[_Union[AliasDefinition, _Mapping]] = ..., traffic: _Optional[_Iterable[_Union[AliasTraffic, _Mapping]]] = ..., promotion: _Optional[_Union[AliasPromotion, _Mapping]] = ..., shadowed: _Optional[_Union[AliasShadowed, _Mapping]] = ..., history: _Optional[_Iterable[_Union[AliasChange, _Mapping]]] = ...) -> None: ...
