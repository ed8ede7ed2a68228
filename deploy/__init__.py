"""Deployment of the server, and of the programs beside it."""
