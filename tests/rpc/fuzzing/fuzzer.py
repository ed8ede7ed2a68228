"""One message after another, each judged."""

from __future__ import annotations

from collections import Counter

from rpc.fuzzing.judge import compare
from rpc.fuzzing.messages import Messages


class Fuzzer:
    """Makes inputs, counts them, and compares what is understood of each.

    `outcomes` counts requests, and errors by their class. What escapes has its message as a note.
    """

    def __init__(self, seed: int) -> None:
        self.inputs = self.bytes = 0
        self.outcomes: Counter[str] = Counter()
        self._messages = Messages(seed)

    def run(self, inputs: int) -> None:
        """Run `inputs` more inputs."""
        for _ in range(inputs):
            message = self._messages.next()
            try:
                first = compare(message)[0]
            except BaseException as error:
                error.add_note(message.hex())
                raise
            self.outcomes[first.__name__ if isinstance(first, type) else "request"] += 1
            self.inputs += 1
            self.bytes += len(message)
