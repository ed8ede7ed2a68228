"""`penstock tune`: searches settings of a model, measures each, and writes the best ones."""
