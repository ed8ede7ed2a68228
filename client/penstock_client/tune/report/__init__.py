"""Results of `penstock tune` for people and programs: on the terminal, as JSON, CSV and HTML."""
