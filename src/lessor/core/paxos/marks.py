"""Short numbers that stand for long names, the same on every node and client. They give nothing of the name away."""

from __future__ import annotations

from hashlib import blake2b


def mark(text: str) -> int:
    """Return 63 bits of a hash: two texts that somebody really uses never share them."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
