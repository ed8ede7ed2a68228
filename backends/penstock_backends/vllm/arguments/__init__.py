"""Arguments of the engine and of its OpenAI application, from the files of a model."""
