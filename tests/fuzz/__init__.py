"""One command for everything that reads bytes of strangers: `python -m fuzz DOOR`.

A door takes any bytes, and either understands them or refuses them with an error of its own.
With `atheris` installed the inputs follow what code they reach, else they are made of the corpus by
chance. The transports have fuzzers of their own as well (`http1.fuzzing`, `http2.fuzzing`,
`rpc.fuzzing`, `hosting.fuzzing`), which check what is answered; here all that counts is that
nothing else escapes, hangs or takes the memory.
"""
