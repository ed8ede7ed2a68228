"""Instances in processes of their own: the link to them, their start, watch, restart and end."""
