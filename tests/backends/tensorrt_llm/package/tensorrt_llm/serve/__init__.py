"""The stand-in for `tensorrt_llm.serve`."""
