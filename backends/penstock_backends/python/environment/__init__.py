"""Python environments of models: interpreters, archives, requirements, one-shot processes."""
