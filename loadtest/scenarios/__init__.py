"""One file per shape of traffic."""
