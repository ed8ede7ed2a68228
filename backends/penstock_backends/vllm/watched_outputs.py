"""Watches vLLM's output processor for facts in no report: late outputs, and owners of the others.

Every output passes there. Those of requests that are over are dropped without a word; times of the
others are reported without their requests.
"""

from __future__ import annotations

from typing import Any

from penstock_backends.vllm.output_owners import NOBODY, OWNER
from penstock_backends.vllm.statistics import VllmStatistics


def watch_outputs(llm: Any, statistics: VllmStatistics) -> None:
    """From now on count the tokens of late outputs as wasted, and note the owners of others.

    The engine's process is a step ahead of an abort, or more.
    """
    processor = llm.output_processor
    add, process = processor.add_request, processor.process_outputs
    reports = processor.log_stats

    def adding(request: Any, *more: Any, **named: Any) -> Any:
        added = add(request, *more, **named)
        if (owner := OWNER.get()) != NOBODY:
            processor.request_states[request.request_id].owner = owner
        return added

    def watching(outputs: Any, *more: Any, **named: Any) -> Any:
        known = processor.request_states
        for output in outputs:
            if (state := known.get(output.request_id)) is None:
                statistics.wasted_tokens += len(output.new_token_ids)
            elif reports:
                statistics.owners.note(state)
        return process(outputs, *more, **named)

    processor.add_request, processor.process_outputs = adding, watching
