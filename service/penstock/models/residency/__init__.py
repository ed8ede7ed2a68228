"""Residency: models are loaded when they are called, and let go when their memory is wanted."""
