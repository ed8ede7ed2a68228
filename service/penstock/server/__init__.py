"""The facade that every frontend calls, its views, and the settings that clients change."""
