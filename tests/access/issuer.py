"""An issuer of tokens: its keys, and tokens signed with them."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from access.policies import POLICY

ISSUER, AUDIENCE = "https://issuer.example", "penstock"


class Issuer:
    """Keys `rsa`, `ec` and `ed`, by these ids."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "ed": ed25519.Ed25519PrivateKey.generate(),
        }

    def key_set(self, **more: Any) -> bytes:
        """The public keys as a JSON Web Key Set; `more` members of each."""
        forms: dict[str, Any] = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}
        listed = [
            {**forms[kid].to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}
            for kid, key in self.keys.items()
        ]
        return json.dumps({"keys": listed}).encode()

    def token(self, kid: str = "ec", algorithm: str = "ES256", **changed: Any) -> str:
        """A token of alice's for an hour; claims that are `None` are left out."""
        claims = {
            "sub": "alice",
            "groups": ["research"],
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": time.time() + 3600,
            **changed,
        }
        said = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(said, self.keys[kid], algorithm, {"kid": kid})


def with_tokens(key_set: str, text: str = POLICY, more: str = "") -> str:
    """A policy that believes the issuer."""
    return f"""{text}
[tokens]
key_set = "{key_set}"
algorithms = ["RS256", "ES256", "EdDSA"]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
{more}
"""
