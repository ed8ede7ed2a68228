"""Models on disk: folders, versions, labels, and files that come with load requests."""
