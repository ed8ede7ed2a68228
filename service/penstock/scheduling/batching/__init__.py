"""The dynamic batcher: a priority queue, batch forming, and the order of responses."""
