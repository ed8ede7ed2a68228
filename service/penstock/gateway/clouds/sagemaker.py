"""The SageMaker endpoint: one default model, or models that the service loads from folders."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.access.current import enter
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    shortened,
)
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import gateway_router
from penstock.gateway.call_guard import CallGuard, guards, may_see
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.redirect import Redirect, default_for
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.control_bodies import ControlBodies
from penstock.gateway.inference.body_memory import BodyMemory
from penstock.gateway.json.fields import as_string, required, unable
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.replies import (
    PLAIN,
    Refusal,
    Reply,
    error_reply,
    http_status,
    json_reply,
    method_not_allowed,
    reply,
)
from penstock.http1.requests import RequestHead
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings

_SERVICE = "Sagemaker"
_NO_MODEL = "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
_TYPES = ("infer", "generate", "generate_stream")
_MODES = ("ready", "live")


@dataclass(frozen=True, slots=True)
class _Environment:
    """The service's environment variables."""

    model: str
    inference_type: str
    ping_mode: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> _Environment:
        """Raises `EndpointStartError` for values that there are not."""
        kind = environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE") or _TYPES[0]
        mode = environment.get("SAGEMAKER_TRITON_PING_MODE") or _MODES[0]
        model = environment.get("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME") or _NO_MODEL
        if kind not in _TYPES:
            raise _failure(
                f"Server has invalid inference type '{kind}'. Must be one of: {', '.join(_TYPES)}."
            )
        if mode not in _MODES:
            raise _failure(
                f"Server has invalid ping mode '{mode}'. Must be one of: {', '.join(_MODES)}."
            )
        return cls(model, kind, mode)


_failure = partial(EndpointStartError, _SERVICE)


@asynccontextmanager
async def open_sagemaker(
    server: InferenceServer,
    http: HttpSettings,
    port: int,
    root: Path,
    environment: Mapping[str, str],
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
) -> AsyncIterator[int]:
    """Serve SageMaker, which loads models from below `root`; yields the port.

    Raises `EndpointStartError` for an environment that says what there is not, and `OSError` if the
    address is not available.
    """
    known = _Environment.read(environment)
    helper, memory = JsonHelper(), BodyMemory(server.messages)
    router = gateway_router(server, http, helper, memory=memory)
    redirect = Redirect(
        router, "sagemaker-triton", memory, lambda head: models.model_of(head) or known.model
    )
    guarded = guards(http.restrictions, (), server.access)
    models = MultiModelEndpoints(server, redirect, ControlBodies(helper), guarded, root)
    default = partial(default_for, server.access, model=known.model, unseen=_NO_MODEL)
    endpoint = _SagemakerEndpoint(redirect, models, known, default)
    try:
        async with listening(
            endpoint.start,
            _SERVICE,
            http.host,
            port,
            grace,
            rules,
            reserve=redirect.reserve,
            tls=http.tls,
        ) as port:
            yield port
    finally:
        helper.close()


class _SagemakerEndpoint:
    def __init__(
        self,
        redirect: Redirect,
        models: MultiModelEndpoints,
        known: _Environment,
        default: Callable[[HttpCall], str],
    ) -> None:
        self._redirect = redirect
        self._models = models
        self._known = known
        self._default = default

    def start(self, call: HttpCall) -> None:
        """Begin to answer a call."""
        known = self._known
        if call.path == "/ping":
            self._redirect.start(call, call.method, f"/v2/health/{known.ping_mode}")
        elif call.path == "/invocations":
            if call.method == "POST":
                path = f"/v2/models/{self._default(call)}/{known.inference_type}"
                self._redirect.start(call, "POST", path)
            else:
                call.send(method_not_allowed(("POST",)))
        elif not self._models.start(call):
            call.send(reply(status=400, content_type=PLAIN))


_PATH = re.compile(r"/models(?:/?|/(?P<model>[^/]+)(?P<invoke>/invoke)?)")
_TARGET = "x-amzn-sagemaker-target-model"
_PATH_MARKS = frozenset("/\\%")
_ENCODED = re.compile("%(2e|2f|5c|00)", re.IGNORECASE)
_FORBIDDEN = ("/dev/", "/proc/", "/sys/")
_ENSEMBLE = re.compile(r'platform\s*:\s*"ensemble"')

_NO_MEMORY = (
    "CUDA out of memory",
    "CUDA_OUT_OF_MEMORY",
    "Out of memory",
    "Out Of Memory",
    "out of memory",
    "MemoryError",
    "OutOfMemory",
    "OOM",
    "Dst tensor is not initialized",
    "Src tensor is not initialized",
    "CNMEM_STATUS_OUT_OF_MEMORY",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "Failed to allocate memory",
    "failed to allocate memory",
    "No space left on device",
)
"""Parts of errors that mean that there is no room for a model: SageMaker then unloads others."""


class _Loaded(NamedTuple):
    """A model that SageMaker has loaded: its name here, and the repository that it is from."""

    target: str
    repository: Path


class MultiModelEndpoints:
    """Answers the paths below `/models`. Models are known by the names that SageMaker gives them;
    the server knows them by those of the header `X-Amzn-SageMaker-Target-Model`, if it is there.
    """

    def __init__(
        self,
        server: InferenceServer,
        redirect: Redirect,
        bodies: ControlBodies,
        guarded: Mapping[Feature, CallGuard],
        root: Path,
    ) -> None:
        self._server = server
        self._redirect = redirect
        self._bodies = bodies
        self._guard = guarded[Feature.MODEL_REPOSITORY]
        self._invoke_guard = guarded.get(Feature.INFERENCE)
        self._root = root
        self._models: dict[str, _Loaded] = {}
        self._turn = asyncio.Lock()  # one change at a time

    def start(self, call: HttpCall) -> bool:
        """Begin to answer a call; returns whether its path and method are known here."""
        found = _PATH.fullmatch(call.path)
        if found is None:
            return False
        model = found["model"] or ""
        if found["invoke"]:
            if call.method != "POST":
                return False
            self._invoke(call, model)
            return True
        if call.method == "POST" and model:
            return False
        if call.method not in ("GET", "POST", "DELETE"):
            return False
        if refusal := self._guard.refusal(call):
            call.send(Refusal(refusal))
        else:
            call.run(self._answer(call, model))
        return True

    def model_of(self, head: RequestHead) -> str:
        """The model that a call invokes; empty for one that invokes none of these."""
        found = _PATH.fullmatch(head.path)
        loaded = None if found is None else self._models.get(found["model"] or "")
        return "" if loaded is None else head.headers.get(_TARGET) or loaded.target

    def _invoke(self, call: HttpCall, model: str) -> None:
        # Before a name is looked up, which would tell strangers whether there is such a model.
        if self._invoke_guard is not None and (refusal := self._invoke_guard.refusal(call)):
            call.send(Refusal(refusal, PLAIN))
            return
        loaded = self._seen(call, model)
        if loaded is None:
            call.send(reply(status=404, content_type=PLAIN))
            return
        target = call.headers.get(_TARGET) or loaded.target
        if not _is_name(target):
            call.send(error_reply(_no_name(target), 400))
            return
        self._redirect.start(call, "POST", f"/v2/models/{target}/infer", _with_status)

    def _seen(self, call: HttpCall, name: str) -> _Loaded | None:
        """The model of a name, if it is loaded and the caller sees it."""
        loaded = self._models.get(name)
        return loaded if loaded is not None and may_see(call, loaded.target) else None

    async def _answer(self, call: HttpCall, model: str) -> None:
        if call.permit is not None:
            enter(call.permit)
        try:
            if call.method == "GET":
                answer = self._model(call, model) if model else await self._list()
            elif call.method == "POST":
                answer = await self._load(call)
            else:
                answer = await self._unload(call, model)
        except ClientDisconnectError:
            return
        except InferenceError as error:
            answer = error_reply(error.message, _status(error))
        call.send(answer)

    # -- models -------------------------------------------------------------------------------

    async def _list(self) -> Reply:
        return json_reply(
            {
                "models": [
                    _described(name, loaded)
                    for name, loaded in list(self._models.items())  # others come meanwhile
                    if await self._ready(loaded.target)
                ]
            }
        )

    async def _ready(self, name: str) -> bool:
        try:
            return await self._server.model_ready(name, "")
        except InferenceError:
            return False

    def _model(self, call: HttpCall, name: str) -> Reply:
        loaded = self._seen(call, name)
        if loaded is None:
            return reply(status=404, content_type=PLAIN)
        return json_reply(_described(name, loaded))

    async def _load(self, call: HttpCall) -> Reply:
        self._server.check_model_control()
        name, url = await self._bodies.read(call, _name_and_url)
        target = call.headers.get(_TARGET) or name
        if not _is_name(target):
            raise InvalidRequestError(_no_name(target))
        if not may_see(call, target):
            raise PermissionDeniedError("the caller may not change models of this name")
        async with self._turn:
            if name in self._models:
                raise AlreadyExistsError(f"model '{shortened(name)}' has already been registered")
            repository, subfolder = await asyncio.to_thread(_repository, url, self._root)
            await self._server.register_repository(str(repository), {subfolder: target})
            try:
                await self._server.load(target, {})
            except BaseException:
                await self._server.unregister_repository(str(repository))
                raise
            self._models[name] = _Loaded(target, repository)
        return reply()

    async def _unload(self, call: HttpCall, name: str) -> Reply:
        async with self._turn:
            loaded = self._seen(call, name)
            if loaded is None:
                return reply(status=404, content_type=PLAIN)
            await self._server.unload(loaded.target, unload_dependents=True)
            del self._models[name]
            await self._server.unregister_repository(str(loaded.repository))
        return reply()


def _described(name: str, loaded: _Loaded) -> dict[str, str]:
    return {"modelName": name, "modelUrl": str(loaded.repository)}


def _name_and_url(json: Any) -> tuple[str, str]:
    """The model and the folder that a request names."""
    return _text(json, "model_name"), _text(json, "url")


def _text(json: Any, key: str) -> str:
    """A member that is no empty text: an empty path would be the folder that the server runs in."""
    if text := as_string(required(json, key), unable(key)):
        return text
    raise InvalidRequestError(f"{unable(key)}the text is empty")


def _is_name(target: str) -> bool:
    """Whether a target is a name and no path, as it is written: in a route it would be another."""
    return target not in (".", "..") and not _PATH_MARKS.intersection(target)


def _no_name(target: str) -> str:
    return f"'{shortened(target)}' is no name of a model: it is a path, or has encoded characters"


def _folder(url: str, root: Path) -> Path:
    """The folder of a model, which must lie below `root`, and be written without detours.

    Raises also for those of the operating system's own file systems.
    """
    folder, real = os.path.abspath(url), os.path.realpath(url)
    if f"{folder}/".startswith(_FORBIDDEN) or f"{real}/".startswith(_FORBIDDEN):
        raise InvalidRequestError(
            f'Invalid URL: {url}. "url" property value cannot start with /dev/, /proc/, or /sys/.'
        )
    if os.path.realpath(root) not in map(str, Path(real).parents):
        raise InvalidRequestError(
            f"Invalid URL: {shortened(url)}. Models must lie below '{root}'; --sagemaker-model-root"
            " names another folder."
        )
    if ".." in Path(url).parts or _ENCODED.search(url):
        raise InvalidRequestError(
            f"Invalid URL: {shortened(url)}. \"url\" property value cannot have '..' or encoded"
            " characters."
        )
    return Path(folder)


def _repository(url: str, root: Path) -> tuple[Path, str]:
    """The repository of a model, and its folder there.

    `url` is the folder of the model, with its configuration, or one that holds models: the ensemble
    is then meant if there is one, else the last.
    """
    try:
        return _found(_folder(url, root))
    except (OSError, ValueError) as error:  # it cannot be read, or the system has no such paths
        raise InvalidRequestError(f"failed to register '{shortened(url)}': {error}") from error


def _found(folder: Path) -> tuple[Path, str]:
    if not folder.is_dir():
        raise NotFoundError(f"failed to register '{folder}', repository not found")
    if (folder / "config.pbtxt").is_file():
        return folder.parent, folder.name
    models = sorted(each for each in folder.iterdir() if each.is_dir())
    if not models:
        raise InvalidRequestError(f"failed to register '{folder}', there is no model")
    return folder, next((each.name for each in models if _is_ensemble(each)), models[-1].name)


def _is_ensemble(folder: Path) -> bool:
    try:
        text = (folder / "config.pbtxt").read_text(errors="replace")
    except OSError:
        return False
    return _ENSEMBLE.search(text) is not None


def _with_status(answer: Reply) -> Reply:
    """A reply with the status that SageMaker knows."""
    if isinstance(answer, Refusal):
        answer.status = _status(answer.error)
    return answer


def _status(error: InferenceError) -> int:
    """507 for want of memory, 409 for what is there already, else 400."""
    if any(part in error.message for part in _NO_MEMORY):
        return 507
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return http_status(error)
    return 409 if isinstance(error, AlreadyExistsError) else 400
