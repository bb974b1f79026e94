"""Engines that run a plan, one a file; a new file is found by itself.

base                     what an engine is, and what all of PyTorch's have in common
native                   the executor's own steps
ddp fsdp2                replicas, shards
deepspeed                replicas and ZeRO by DeepSpeed's engine
dtensor pipelining       matrices and tokens cut over ranks, stages; each with the former inside
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.executor.engines.base import Engine
from oracle.spec.registry import concrete

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def engines() -> dict[str, Engine]:
    """All engines by name, the native one first; one defined elsewhere is among them."""
    by_name = {cls.name: cls() for cls in concrete(Engine)}
    return dict(sorted(by_name.items(), key=lambda item: (item[0] != "native", item[0])))


__all__ = ["Engine", "engines"]
