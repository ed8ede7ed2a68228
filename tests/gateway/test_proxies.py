"""The HTTP port behind proxies, where they are installed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.serving import LOCAL, FakeServer, SilentServer
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.gateway.app import open_gateway
from programs.places import find

_PATIENCE = 30.0
_INFER = "/v2/models/numbers/infer"
_STREAM = "/v2/models/numbers/generate_stream"

_NGINX = """
daemon off;
pid {folder}/pid;
worker_processes 1;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  upstream penstock {{ server 127.0.0.1:{behind}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://penstock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  option abortonclose
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend front
  bind 127.0.0.1:{port}
  default_backend penstock
backend penstock
  http-reuse always
  server penstock 127.0.0.1:{behind}
"""
_ENVOY = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts:
            - name: penstock
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: penstock, timeout: 0s}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: penstock
    load_assignment:
      cluster_name: penstock
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {behind}}}}}}}
"""  # noqa: E501 - names of Envoy's
_PROXIES = {
    "nginx": (_NGINX, "proxy.conf", ("-e", "stderr", "-c")),
    "haproxy": (_HAPROXY, "proxy.conf", ("-db", "-f")),
    "envoy": (_ENVOY, "proxy.yaml", ("--use-dynamic-base-id", "--concurrency", "1", "-c")),
}


def _named(name: str) -> object:
    missing = "" if find(name) else f"there is no {name}: `make tools` says why"
    return pytest.param(name, marks=pytest.mark.needs(name, missing))


pytestmark = pytest.mark.parametrize("proxy", [_named(name) for name in _PROXIES])


@asynccontextmanager
async def _behind(proxy: str, server: FakeServer, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a proxy that stands before `server`."""
    text, name, options = _PROXIES[proxy]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with open_gateway(server, LOCAL, ExitDeadline(1)) as behind:
        file = folder / name
        file.write_text(text.format(folder=folder, port=port, behind=behind))
        process = await asyncio.create_subprocess_exec(find(proxy), *options, str(file))
        try:
            await _until_open(port)
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", verify=False
            ) as client:
                yield client
        finally:
            process.terminate()
            await process.wait()


async def _until_open(port: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            await hang_up(writer)
            return


def _binary(values: np.ndarray) -> tuple[bytes, dict[str, str]]:
    text = (
        f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[{len(values)}],'
        f'"parameters":{{"binary_data_size":{values.nbytes}}}}}],'
        '"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}'
    ).encode()
    return text + values.tobytes(), {"inference-header-content-length": str(len(text))}


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 50_000):
        yield data[at : at + 50_000]


@pytest.mark.parametrize("chunked", [False, True])
async def test_tensors_pass_there_and_back(proxy: str, chunked: bool, tmp_path: Path) -> None:
    """Many calls on connections that the proxy keeps open."""
    values = np.arange(200_000, dtype=np.float32)
    data, headers = _binary(values)
    async with _behind(proxy, FakeServer(), tmp_path) as client:
        for _ in range(10):
            body = _pieces(data) if chunked else data
            answer = await client.post(_INFER, content=body, headers=headers)
            assert answer.status_code == 200
            assert answer.content.endswith(values.tobytes())
            assert (await client.get("/v2/health/live")).status_code == 200


async def test_events_pass_one_by_one_and_a_leaver_is_noticed(proxy: str, tmp_path: Path) -> None:
    server = SilentServer()
    async with _behind(proxy, server, tmp_path) as client:
        request = client.build_request("POST", _STREAM, json={"IN": 1.0})
        asking = asyncio.create_task(client.send(request, stream=True))
        _, stream = await asyncio.wait_for(server.asked.get(), _PATIENCE)
        stream.send(_response(0.0))
        answer = await asking
        lines = answer.aiter_lines()
        for number in range(3):
            line = await asyncio.wait_for(_next_event(lines), _PATIENCE)
            assert f'"OUT":{number}.0' in line
            stream.send(_response(number + 1.0))
        await answer.aclose()
        async with asyncio.timeout(_PATIENCE):
            while not stream.ended:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)


def _response(value: float) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_numpy(np.array([value], np.float32))})


async def _next_event(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line:
            return line
    raise AssertionError("the stream has ended")
