"""OpenAI's API of a model on vLLM: vLLM's own application over the engine that runs already."""
