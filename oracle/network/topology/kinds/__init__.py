"""Every kind of network level, by the name that a spec gives it.

dragonfly  groups of fully meshed routers, a link between each two groups
dragonfly_plus  groups of leaves and spines, the spines of any two groups linked
graph      hosts, switches and links as a spec or a file lists them
hyperx     switches in a grid, those of a line all linked
loop       switches in a ring with shortcuts of power-of-two length
mesh       a link of its own between every two units
optical    a packet switch, and optical circuits between neighbours
planes     rails and planes that never meet
rail       port j of every node on leaf switch j
slim_fly   the graphs of McKay, Miller and Širáň
switch     one switch, PCIe, stages of a fat tree
torus      tori, rings and open grids
twisted_torus  tori whose way round is twisted

A new file beside these is found by itself.
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.network.topology.fabric import Fabric
from oracle.spec.registry import descendants

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

KINDS: dict[str, type[Fabric]] = {
    kind.kind: kind for kind in (Fabric, *descendants(Fabric)) if kind.kind
}
