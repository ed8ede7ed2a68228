"""The commands that talk to a running server, for shells: one module each.

Each module has `parser`, which shell completion reads too, and `run`.
"""

VERBS = {
    "infer": "Send one request to a model, and print its outputs.",
    "generate": "Print what a language model generates, as it comes.",
    "embed": "Print the vectors of texts.",
    "models": "List the models of a server.",
    "load": "Load a model, or load it anew.",
    "unload": "Unload a model.",
    "stats": "Print requests, batches and mean times of models.",
    "wait": "Wait until a server, and models, are ready.",
}
"""The commands, each with what it does."""
