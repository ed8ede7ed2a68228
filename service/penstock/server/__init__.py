"""The facade that every frontend calls, and what it answers with."""
