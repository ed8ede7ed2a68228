"""Access: who may make which calls of which models, by a policy in a file.

`AccessGate` is the door: frontends ask it before the body of a call is read. `policy` decides, in
pure code; `current` says for whom the code at hand runs.
"""
