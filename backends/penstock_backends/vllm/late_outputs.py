"""Tokens that vLLM makes for requests that are over: their outputs are dropped without a word."""

from __future__ import annotations

from typing import Any

from penstock_backends.language_model import EngineStatistics


def count_late_outputs(llm: Any, statistics: EngineStatistics) -> None:
    """Count from now on, as wasted, the tokens of outputs whose requests vLLM has forgotten.

    The engine's process is a step ahead of an abort, or more. vLLM's output processor, through
    which everything passes, tells nobody what it ignores.
    """
    processor = llm.output_processor
    process = processor.process_outputs

    def counting(outputs: Any, *more: Any, **named: Any) -> Any:
        known = processor.request_states
        for output in outputs:
            if output.request_id not in known:
                statistics.wasted_tokens += len(output.new_token_ids)
        return process(outputs, *more, **named)

    processor.process_outputs = counting
