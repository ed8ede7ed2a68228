"""A policy for tests, and the keys of its callers."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.access.gate import AccessGate
from penstock.access.policy import key_hash
from penstock.access.policy_file import parse_policy

ALICE, BOB, ADMIN, SECOND = "key-of-alice", "key-of-bob", "key-of-admin", "new-key-of-alice"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def hashed(*keys: str) -> str:
    """Keys as a list of their hashes in TOML."""
    return "[" + ", ".join(f'"sha256:{key_hash(key)}"' for key in keys) + "]"


POLICY = f"""
[callers.alice]
keys = {hashed(ALICE, SECOND)}
groups = ["research"]

[callers.bob]
keys = {hashed(BOB)}

[callers.admin]
keys = {hashed(ADMIN)}

[[rules]]
callers = ["anyone"]
calls = ["health"]
models = ["open*"]

[[rules]]
callers = ["group:res*"]
calls = ["inference", "metadata", "model-config", "statistics", "model-repository", "health"]
models = ["open*"]

[[rules]]
callers = ["admin"]
calls = ["*"]
"""


def replaced(file: Path, text: str | None) -> None:
    """Replace a file by a rename; without a text, remove it."""
    if text is None:
        file.unlink()
        return
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def gate(text: str = POLICY) -> AccessGate:
    return AccessGate(parse_policy(text))
