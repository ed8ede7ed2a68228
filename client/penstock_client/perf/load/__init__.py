"""Load on a server: when requests are sent, by which process, and what is kept of each."""
