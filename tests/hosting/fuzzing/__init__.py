"""Whatever a model process sends, the server loses no more than that process."""
