"""Configuration files of Triton's Model Analyzer, read as options of `penstock tune`."""
