"""The cost of a token late in a long text: detokenizing, stop strings and delivery, without engine.

    python -m loadtest.llm_scenarios.long_generations

What happens to each token in the process of a language model, at the start of a text and after
32,000 tokens; it must not grow. `times` is the cost against that at the start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tokenizers import Tokenizer

from loadtest.report import Row, arguments, median_rows, show
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.language_model import (
    Answer,
    Delivery,
    Detokenizer,
    GenerationRequest,
    StopStrings,
    WantedOutputs,
)

_TOKENS = 33_000
_WINDOWS = {"100": (50, 1_050), "32,000": (31_500, 32_500)}
"""The tokens around these places are timed together."""


def _seconds(tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str]) -> list[float]:
    """Time after each token of one request whose reader keeps up."""
    detokenizer = Detokenizer(tokenizer, tokens[:10])
    answer = Answer(GenerationRequest("", True, False, None, WantedOutputs()), 10)
    delivery = Delivery(answer, lambda: None)
    found = StopStrings(stops) if stops else None
    candidate, times = answer.candidates[0], []
    for token in tokens:
        text = detokenizer.step(token)
        if found is not None:
            text = found.feed(text, armed=True)
        candidate.add(text)
        delivery.push()
        delivery.stream.take_ready()
        times.append(time.perf_counter())
    return times


def _measure() -> list[Row]:
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    draw = random.Random(1)
    size = tokenizer.get_vocab_size()
    tokens = [draw.randrange(10, size) for _ in range(_TOKENS)]
    rows: list[Row] = []
    for name, stops in (("none", []), ("two", ["no such words", "nor these"])):
        times = _seconds(tokenizer, tokens, stops)
        costs = {
            place: (times[end] - times[begin]) / (end - begin) * 1e6
            for place, (begin, end) in _WINDOWS.items()
        }
        first = next(iter(costs.values()))
        rows += [
            {"stop strings": name, "at token": place, "us": cost, "times": cost / first}
            for place, cost in costs.items()
        ]
    return rows


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    show("A token of a long text", median_rows(options.rounds, _measure), options.json)


if __name__ == "__main__":
    main()
