"""What the log of all rooms shares: levels, fields of a line, and lines that come too often."""
