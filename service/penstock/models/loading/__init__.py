"""From the model repository to models that serve: the load graph, instances, warm-up, unload."""
