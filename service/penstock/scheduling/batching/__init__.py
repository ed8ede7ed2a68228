"""The dynamic batcher: a queue by priority, batch forming, and the order of responses."""
