"""Model configurations: parsing, defaults, unsupported fields, validation."""
