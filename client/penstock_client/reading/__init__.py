"""What servers tell of themselves, read from their public endpoints, and where these are."""
