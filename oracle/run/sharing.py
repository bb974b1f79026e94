"""The part of a machine that one training has when several run at the same time.

The shared file system serves all of them; a node's disk, host and link to the file system serve
those on the node. Files on a disk or in memory are kept once, for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from oracle.spec.system import System


def shared(system: System, trainings: int, on_a_node: int = 1) -> System:
    """Return the system as one of many trainings sees it, with `on_a_node` on each node."""
    storage, host = system.storage, system.host
    if trainings > 1 and storage is not None and storage.shared is not None:
        files = storage.shared
        rates = {name: value / trainings for name in ("bandwidth", "write", "metadata")
                 if (value := getattr(files, name)) is not None}  # fmt: skip
        if files.per_node is not None:
            rates["per_node"] = files.per_node / on_a_node
        storage = replace(storage, shared=replace(files, **rates))
    if on_a_node > 1 and storage is not None and storage.local is not None:
        disk = storage.local
        write = None if disk.write is None else disk.write / on_a_node
        disk = replace(disk, read=disk.read / on_a_node, write=write)
        storage = replace(storage, local=disk)
    if on_a_node > 1 and host is not None:
        rate = None if host.bandwidth is None else host.bandwidth / on_a_node
        host = replace(host, cores=max(1, host.cores // on_a_node), bandwidth=rate)
    if storage is system.storage and host is system.host:
        return system
    return replace(system, storage=storage, host=host)
