"""The soak: a mix of verified calls and of trouble, for a long time."""
