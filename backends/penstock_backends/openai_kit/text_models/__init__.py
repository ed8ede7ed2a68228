"""Models of any backend, and ensembles, from text to text: a `Generator` over their tensors."""
