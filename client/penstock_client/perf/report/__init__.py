"""Results of `penstock perf` for people and programs: on the terminal, as JSON, CSV and HTML."""
