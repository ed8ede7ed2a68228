"""Checks of repositories without loading: what will load, and what a careful operator would see."""
