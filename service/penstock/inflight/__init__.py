"""In-flight requests: their state and deadlines, and the statistics of how they ended."""
