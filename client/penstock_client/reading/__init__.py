"""Readers of what servers tell at their public endpoints, and the addresses of these."""
