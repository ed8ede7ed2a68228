"""The built-in backends, found by entry point as a stranger's would be. Importing costs nothing."""
