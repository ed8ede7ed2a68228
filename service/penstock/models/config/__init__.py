"""Rules of model configurations: reading, defaults, what is unsupported, validation."""
