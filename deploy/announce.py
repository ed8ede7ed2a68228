"""Wait until the server that `make serve` starts is ready, then say how to try it.

    python deploy/announce.py PROCESS HTTP_PORT GRPC_PORT METRICS_PORT

Ends quietly when the process does, and when another server has the port already.
"""

import json
import os
import shlex
import sys
import time
import urllib.error
import urllib.request


def main(process: int, http: int, grpc: int, metrics: int) -> None:
    address = f"http://localhost:{http}"
    health = f"{address}/v2/health/ready"
    if ready(health):  # that one is not ours, which has just been started and will find no port
        return
    while not ready(health):
        if not alive(process):
            return
        time.sleep(0.2)
    if not alive(process):  # another server has become ready on the port
        return
    parameters = {"max_tokens": 40, "temperature": 0}
    body = json.dumps({"text_input": "The function returns", "parameters": parameters})
    line = f"curl -s {address}/v2/models/tiny_llm/generate -d {shlex.quote(body)}"
    print(f"\nServing on http {http}, grpc {grpc}, metrics {metrics}.", end=" ")
    print(f"Try it from another terminal:\n\n    {line}\n", flush=True)


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
