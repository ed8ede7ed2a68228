"""Parsers of generated text: reasoning, tool calls, and the parts that an answer has."""
