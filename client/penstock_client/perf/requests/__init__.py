"""Making the requests of a load in advance: tensors, prompts, and their bytes on each wire."""
