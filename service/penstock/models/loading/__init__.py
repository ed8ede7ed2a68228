"""Loading of models: load graph, version builder, instance factory, warmup, unloading."""
