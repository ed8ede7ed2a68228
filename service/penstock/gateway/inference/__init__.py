"""The inference endpoints: infer, generate and generate_stream."""
