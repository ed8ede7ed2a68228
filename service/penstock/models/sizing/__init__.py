"""How much memory models take: read from the headers of their files, before they are loaded."""
