"""Admission in tokens: limits of what waits for a language model, and fairness between tenants."""
