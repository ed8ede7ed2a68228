"""What is measured of language models, each a program of its own."""
