"""The HTTP connections of a port over asyncio, and the calls on them."""
