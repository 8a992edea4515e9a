"""Ways in which a file's content goes wrong."""

from __future__ import annotations

import random


def damaged(content: bytes, generator: random.Random) -> tuple[str, bytes]:
    """What was done, and the content after it: cut off, a bit flipped, a stretch of zeros, or garbage at the end."""
    kind = generator.choice(("truncated", "flipped", "flipped", "zeros", "longer"))
    position = generator.randrange(len(content))
    if kind == "truncated":
        return f"truncated to {position} of {len(content)} bytes", content[:position]
    if kind == "flipped":
        # Heads and tails of files hold what gives the rest its meaning.
        near_an_end = generator.randrange(min(len(content), 300)) * generator.choice((1, -1)) % len(content)
        position = generator.choice((position, near_an_end))
        bit = generator.randrange(8)
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        return f"bit {bit} of byte {position} flipped", bytes(changed)
    if kind == "zeros":
        length = min(generator.choice((16, 512, 4096)), len(content) - position)
        return f"{length} bytes from {position} zeroed", content[:position] + bytes(length) + content[
            position + length :
        ]
    return "something appended", content + generator.randbytes(generator.choice((1, 100)))
