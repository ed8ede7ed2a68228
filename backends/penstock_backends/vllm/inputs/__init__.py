"""What a request gives vLLM: prompts, media, sampling parameters, options."""
