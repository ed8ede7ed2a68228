"""The model process of Python models: link, runtime, worker, execution, replies."""
