"""Models: rules of configurations, the repository on disk, loading and serving."""
