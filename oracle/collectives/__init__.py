"""Every collective operation, by every algorithm: its messages, its closed form, its schedule."""

from oracle.collectives.message import Message

__all__ = ["Message"]
