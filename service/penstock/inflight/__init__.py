"""Requests under way: their state, deadlines, and the statistics of how they ended."""
