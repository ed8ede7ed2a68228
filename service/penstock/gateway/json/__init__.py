"""JSON of the inference protocol: text, typed fields, tensors, and errors in the words that clients know."""
