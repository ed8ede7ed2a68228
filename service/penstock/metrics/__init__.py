"""Metrics as values: counters, histograms, summaries, and their text in Prometheus format."""
