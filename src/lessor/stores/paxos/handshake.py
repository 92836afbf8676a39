"""How two that share a secret show each other that they know it, without telling it.

Each side draws a nonce, and proves that it knows the secret by a code over both nonces and its own part. A proof that
was overheard serves nobody: the nonces of the next connection are others. What follows is neither hidden nor sealed:
for that there is TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

NONCE_BYTES: Final = 16
CLIENT: Final = b"lessor client 1"
NODE: Final = b"lessor node 1"


def nonce() -> bytes:
    """Return a fresh one."""
    return os.urandom(NONCE_BYTES)


def prove(secret: bytes, part: bytes, clients_nonce: bytes, nodes_nonce: bytes) -> bytes:
    """Return the proof of one side; empty where there is no secret."""
    if not secret:
        return b""
    text = b"\0".join((part, clients_nonce.hex().encode(), nodes_nonce.hex().encode()))
    return hmac.digest(secret, text, hashlib.sha256)


def proven(proof: bytes, secret: bytes, part: bytes, clients_nonce: bytes, nodes_nonce: bytes) -> bool:
    """Whether the other side knows the secret."""
    return hmac.compare_digest(proof, prove(secret, part, clients_nonce, nodes_nonce))
