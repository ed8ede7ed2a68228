"""Loaded models: admission of requests, instances that execute them, and the catalog."""
