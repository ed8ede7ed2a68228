"""The server on a loop with virtual time and seeded chance: see `world`."""
