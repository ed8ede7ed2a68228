"""Wait until the server that `make serve` starts is ready, then say how to try it.

    python deploy/announce.py PROCESS PORT

Ends quietly when the process does, and when another server has the port already.
"""

import json
import os
import shlex
import sys
import time
import urllib.error
import urllib.request


def main(process: int, port: int) -> None:
    address = f"http://localhost:{port}"
    health = f"{address}/v2/health/ready"
    if ready(health):  # that one is not ours, which has just been started and will find no port
        return
    while not ready(health):
        if not alive(process):
            return
        time.sleep(0.2)
    parameters = {"max_tokens": 40, "temperature": 0}
    body = json.dumps({"text_input": "The function returns", "parameters": parameters})
    line = f"curl -s {address}/v2/models/tiny_llm/generate -d {shlex.quote(body)}"
    print(f"\nReady. Try it from another terminal:\n\n    {line}\n", flush=True)


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
    main(int(sys.argv[1]), int(sys.argv[2]))
