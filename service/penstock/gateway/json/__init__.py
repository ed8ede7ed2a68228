"""JSON of the inference protocol: text, typed fields, tensors, errors in Triton's words."""
