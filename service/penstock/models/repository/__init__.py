"""The model repository on disk: models, versions, labels, and files of load requests."""
