"""Load scenarios of language models, one program for each."""
