"""Where the time to a token goes, step by step: notes taken inside a running server."""
