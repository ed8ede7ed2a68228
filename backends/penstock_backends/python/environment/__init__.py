"""Environments that models bring: interpreters, archives, requirements, one-shot processes."""
