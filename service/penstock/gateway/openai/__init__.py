"""OpenAI's API: the door in front of models that answer it by an application of their own."""
