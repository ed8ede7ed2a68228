"""Requests that no server wants, sent as bytes, and what they do to other clients."""
