"""Releases: a stable name for models whose versions come and go, and its shares of traffic."""
