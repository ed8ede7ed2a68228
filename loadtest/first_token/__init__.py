"""Where the time to a first token goes, step by step: notes taken inside a running server."""
