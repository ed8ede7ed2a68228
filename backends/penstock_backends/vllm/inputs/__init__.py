"""The parts of a request for vLLM: prompts, media, sampling parameters, options."""
