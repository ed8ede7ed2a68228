"""The API of a Kubernetes cluster, over HTTPS: manifests in, what the server said out."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

Object = dict[str, Any]
"""An object of the API, as JSON has it."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class ApiError(Exception):
    """The API server refused a call: its status, its reason in a word, and its message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a manifest: the object with its defaults, and the server's warnings."""

    object: Object
    warnings: Sequence[str]


@dataclass(slots=True)
class Api:
    """Calls of one user, who is known by a token. Safe for threads."""

    url: str
    token: str
    context: ssl.SSLContext
    _client: httpx.Client = field(init=False)
    _resources: dict[str, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            verify=self.context,
            timeout=30,
            limits=limits,
            trust_env=False,
        )

    def user(self, token: str) -> Api:
        """The calls of another user."""
        return Api(self.url, token, self.context)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        **parameters: str,
    ) -> httpx.Response:
        """A call that the server took; raises ApiError when it did not."""
        content = None if body is None else json.dumps(body).encode()
        answer = self._client.request(
            method,
            path,
            content=content,
            headers={"content-type": kind},
            params=parameters,
        )
        if answer.is_error:
            raise _error(answer)
        return answer

    def apply(
        self, manifest: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> Applied:
        """Apply a manifest on the server's side; fields that it does not know are refused."""
        parameters = {"fieldManager": "penstock", "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            parameters["dryRun"] = "All"
        path = f"{self.path_of(manifest, namespace)}/{manifest['metadata']['name']}"
        answer = self.call("PATCH", path, manifest, kind=_APPLY, **parameters)
        return Applied(answer.json(), warnings_of(answer.headers.get_list("warning")))

    def path_of(self, manifest: Mapping[str, Any], namespace: str = "") -> str:
        """The path of the collection that a manifest belongs to."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        name, namespaced = self._known(version)[kind]
        namespace = manifest["metadata"].get("namespace", namespace or "default")
        return collection(f"{version}/{name}", namespace if namespaced else "")

    def _known(self, version: str) -> Mapping[str, tuple[str, bool]]:
        if version not in self._resources:
            root = "api" if "/" not in version else "apis"
            found = self.call("GET", f"/{root}/{version}").json()["resources"]
            self._resources[version] = {
                each["kind"]: (each["name"], each["namespaced"])
                for each in found
                if "/" not in each["name"]
            }
        return self._resources[version]

    def create(self, manifest: Mapping[str, Any], namespace: str = "") -> Object:
        """Create an object."""
        created: Object = self.call("POST", self.path_of(manifest, namespace), manifest).json()
        return created

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        """An object, such as of `apps/v1/deployments`."""
        found: Object = self.call("GET", f"{collection(resource, namespace)}/{name}").json()
        return found

    def list(self, resource: str, namespace: str = "", selector: str = "") -> list[Object]:
        """The objects of a namespace, or of all, that have these labels."""
        parameters = {"labelSelector": selector} if selector else {}
        answer = self.call("GET", collection(resource, namespace), **parameters).json()
        items: list[Object] = answer["items"]
        return items

    def patch(
        self,
        resource: str,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        *,
        part: str = "",
        kind: str = _MERGE,
    ) -> Object:
        """Change an object, or a part of it such as `status`."""
        path = f"{collection(resource, namespace)}/{name}" + (f"/{part}" if part else "")
        changed: Object = self.call("PATCH", path, change, kind=kind).json()
        return changed

    def delete(self, resource: str, name: str, namespace: str = "", **options: Any) -> None:
        """Delete an object; one that is gone already is as good."""
        try:
            self.call("DELETE", f"{collection(resource, namespace)}/{name}", options or None)
        except ApiError as error:
            if error.status != 404:
                raise

    def follow(
        self,
        resource: str,
        seen: Callable[[str, Object], None],
        stop: threading.Event,
        namespace: str = "",
    ) -> None:
        """Tell each object and each change of one, until stopped; for a thread of its own.

        A watch that ends begins again with all objects, so that the same may be told twice.
        """
        path = collection(resource, namespace)
        while not stop.is_set():
            try:
                for kind, changed in self._changes(path):
                    if stop.is_set():
                        return
                    seen(kind, changed)
            except (httpx.HTTPError, ApiError):
                stop.wait(0.2)  # the server ends, or is not there yet

    def _changes(self, path: str) -> Iterator[tuple[str, Object]]:
        listed = self.call("GET", path).json()
        for item in listed["items"]:
            yield "ADDED", item
        parameters = {
            "watch": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": "20",
        }
        with self._client.stream("GET", path, params=parameters, timeout=30) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def collection(resource: str, namespace: str = "") -> str:
    """The path of `v1/pods`, `apps/v1/deployments` and others, in a namespace or in all."""
    version, _, name = resource.rpartition("/")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{name}" if namespace else f"{root}/{name}"


def warnings_of(headers: Sequence[str]) -> list[str]:
    """The texts of an answer's Warning headers."""
    found = (match for header in headers for match in _WARNING.findall(header))
    return [text.replace('\\"', '"').replace("\\\\", "\\") for text in found]


def _error(answer: httpx.Response) -> ApiError:
    try:
        status = answer.json()
        return ApiError(answer.status_code, status.get("reason", ""), status.get("message", ""))
    except ValueError:
        return ApiError(answer.status_code, "", answer.text)


def condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A condition of an object's status; empty if it has none of this type."""
    conditions: Sequence[Mapping[str, Any]] = found.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})
