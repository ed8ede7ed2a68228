"""Load tools of others against the demo: ghz, k6, locust, perf_analyzer and genai-perf."""
