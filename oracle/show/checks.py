"""What the self-test found, as text."""

from __future__ import annotations

from oracle.ask.selftest import Selftest


def selftest_text(found: Selftest) -> str:
    """One line for each check, and whether all are sound."""
    lines = [f"{'sound' if one.sound else 'WRONG'}  {one.check}: {one.words}"
             for one in found.checks]  # fmt: skip
    wrong = sum(not one.sound for one in found.checks)
    last = f"{found.of} is sound" if found.sound else f"{wrong} of {len(lines)} are wrong"
    return "\n".join([*lines, f"{last} ({found.seconds:.1f} s)"])
