"""Loaded models: admission of requests, the instances that execute them, and the catalog."""
