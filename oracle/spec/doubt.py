"""What each step away from a measurement adds to the doubt of a prediction: one set for all.

Every number is 1σ, relative to the seconds that it speaks of. Causes that err apart add up in
squares; what is said to come `on top` of another adds to it, since both err the same way.

    kernels   measured at this shape     √(EXACT² + the profile's own spread²)
              at another shape           √(SCALED² + spread²)
              a curve                    what it states, COMMON of which all rows share
              work it was not fitted to  on top, FOLD for each e-fold beyond
              of its sibling precision   × SIBLING (bf16 by fp16); by any other × PRECISION
              of another family          FAMILY, in place of what it states: three dimensions
                                         by a curve of two lie within a factor of two to three
              no curve at all            what `kernels.curve.ASSUMED` states: what round figures
                                         err by on devices that were measured
    messages  fitted                     what the fit states, AGAIN at least
              sizes, ranks, level        on top, FOLD for each e-fold or level beyond
              another operation's ring   on top, OPERATION
              a library's constants      LIBRARY, and SHORT inside a node
              a datasheet                DATASHEET, and SHORT
    host      the framework's own work   HOST of it
    software  never held against a step  SOFTWARE of the step
                                         and MEMORY of a device's bytes
              changed by the user        CHANGED of the step, for each field
    step      whatever else              STEP of it, and MORE

SHORT and MORE only ever make a step longer: networks fall short of their datasheets, and what
nobody models (input, stragglers, libraries' own work) takes time.

Where they come from. COMMON and ASSUMED: errors of twenty kernels together, of tables of kernels
on V100, P100, A100, H100. LIBRARY and SHORT inside a node: logs of NCCL within nodes of
A100, H100, B200, which take 1.0 to 1.75 times what its constants say. SHORT between nodes: eight
machines whose allreduce is published get 0.97, 0.98, 0.96, 0.92, 0.6, 0.48, 0.21 and 0.10 of
their links. SOFTWARE: how far predictions move where nobody says what ran a published table, 0.18
of the step in the mean square, and MEMORY, 0.12 on BLOOM's, 0.24 on torchtitan's, 0.02 on
Megatron-Core's. HOST, STEP, MORE: how often the intervals of published tables hold
(`python -m benchmarks.doubt`).
"""

EXACT, SCALED = 0.05, 0.1
COMMON = {"measured": 1.0, "fitted": 1 / 3, "datasheet": 1 / 1.5, "assumed": 1 / 1.5}
FOLD = 0.05
SIBLING, PRECISION = 1.25, 2.0
FAMILY = 0.6
AGAIN = 0.03
OPERATION = 0.1
LIBRARY, DATASHEET = 0.2, 0.3
SHORT = {"inside": 0.45, "between": 1.7, "share": 0.25}
HOST = 0.25
SOFTWARE, CHANGED = 0.18, 0.05
MEMORY = 0.15
STEP = 0.08
MORE = 0.07
