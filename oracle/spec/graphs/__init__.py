"""Networks of any shape: hosts, switches and links, listed in a spec or read from a file.

files          which reader a file is for
xml_events     elements of an XML text, one by one
graph          hosts, switches and links, and the lines that say them
edges          an edge list: two names a line, and the bandwidth between them
graphml        GraphML, as network editors and the Topology Zoo write it
infiniband     the output of ibnetdiscover
nccl           NCCL's dump of a node (`NCCL_TOPO_DUMP_FILE`)
slurm          Slurm's topology.conf

A reader is a file with `TITLE`, `recognises(text)`, and `lines(text, name)`, which gives the lines
of an edge list. A new file beside these is found by itself.
"""

from oracle.spec.graphs.graph import Graph as Graph
