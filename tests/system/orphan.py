"""A server that will be killed: starts a model process with a grandchild, names what it has, waits.

Run as `python orphan.py`; one line with the pids of the model process, its child and the
reaper, and the name of the model process's shared memory.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hosting.puppets import Puppets


async def main() -> None:
    async with Puppets() as puppets:
        instance = await puppets.start()
        grandchild = (await puppets.ask(instance, "grandchild")).parameters["pid"]
        memory = (await puppets.ask(instance, "shared_memory")).parameters["name"]
        print(instance.pid, grandchild, puppets.reaper.pid, memory, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
