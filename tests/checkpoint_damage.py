"""Damage to a file, as a disk that forgets does it."""


def damage(path):
    """One bit, of the byte before the last."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
