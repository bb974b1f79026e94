"""What each step away from a measurement adds to the doubt of a prediction: one set for all.

Every number is 1σ, relative to the seconds that it speaks of. Causes that err apart add up in
squares; what is said to come `on top` of another adds to it, since both err the same way.

    kernels   measured at this shape     √(EXACT² + spread² / samples), as the profile has them
              at another shape           √(SCALED² + spread² / samples)
              a curve                    what it states, COMMON of which all rows share; those of
                                         one library's kernels (`kernels.provenance.ALIKE`) add
                                         up, others err apart
              work it was not fitted to  on top, FOLD for each e-fold beyond
              of its sibling precision   × SIBLING (bf16 by fp16); by any other × PRECISION
              of another family          FAMILY, in place of what it states: three dimensions
                                         by a curve of two lie within a factor of two to three;
                                         PROCESSORS, those of processors by a curve of GPUs
              no curve at all            what `kernels.curve.ASSUMED` states: what round figures
                                         err by on devices that were measured
    messages  fitted                     what the fit states, AGAIN at least
              sizes, ranks, level        on top, FOLD for each e-fold or level beyond
              another operation's ring   on top, OPERATION; by a library's model, COUSIN
              a library's constants      LIBRARY, and SHORT inside a node
              a datasheet                DATASHEET, and SHORT
    host      the framework's own work   HOST of it
    software  never held against a step  SOFTWARE of the device's part of the step, HIDES of what
                                         its messages make it longer, LAYOUT of convolutions
                                         on units for small matrices, where nobody says how
                                         their tensors lie
                                         and MEMORY of a device's bytes
              changed by the user        CHANGED of the step, for each field
    input     pictures, volumes          INPUT of the step, where a host needs as long for them;
                                         less where it needs less, none for tokens
    step      whatever else              STEP of it, and MORE; of rows that were timed at their very
                                         shapes MORE alone, for they hold what lies between kernels

SHORT, INPUT and MORE only ever make a step longer: networks fall short of their datasheets, devices
wait for what they are fed, and what nobody models (stragglers, libraries' own work) takes time.
Kernels, SOFTWARE and HOST share a step out between them: where a pass waits for its host, kernels
that err make it no longer.

Where they come from. COMMON and `kernels.curve.ASSUMED`: errors of twenty kernels together, of
tables of kernels on V100, P100, A100, H100 without their curves. Products of 16 bits on units for
small matrices are missed by 0.06 (V100, A100, H100; from 10 GFLOP on), by 0.3 where there are none
(P100, and fp32): UNTILED; of 8 bits and tf32, which nobody measured, × PRECISION. Attention by 0.1
from 100 GFLOP on, convolutions by 0.4 from 10 GFLOP on (both passes together), smaller work by FOLD
more for each e-fold. LIBRARY and SHORT inside a node: logs of NCCL within nodes of A100, H100,
B200, which take 1.0 to 1.75 times what its constants say. SHORT between nodes: eight machines whose
allreduce is published get 0.97, 0.98, 0.96, 0.92, 0.6, 0.48, 0.21 and 0.10 of their links. SHORT of
a host: renewing 6.7 billion weights there took DeepSpeed's ranks 20 s where 0.7 are priced (eight
A800, gist.github.com/chenyaofo d4cd6a20), 3 billion less than 2.4 s where 0.3 are (two A100, cores
bound to ranks, deepspeedai/DeepSpeed#7474): up to 9 and 30 times as long; of disks: assumed.
PROCESSORS: none of the tables of kernels has volumes on processors, so that a step of them is known
within a factor of three.
MEMORY: how far predictions of memory move where nobody says what ran a published table, 0.12 on
BLOOM's, 0.24 on torchtitan's, 0.02 on Megatron-Core's. READ, values that a device's share of a host
decodes in a second: 850 pictures of 224² in three colours (Harvard's mlsysim tutorial on starving
GPUs; arXiv 2304.08925 has it that devices wait for this even with libraries made for it).

WIDTHS are fitted to all published tables together, by `python -m benchmarks.doubt --fit`, which
also judges each table by what was fitted to all others. SOFTWARE, HIDES and LAYOUT are how far
predictions move where nobody says what ran a table: no measured step enters. STEP, HOST, MORE and
INPUT are chosen by how often intervals hold. One table alone, of small models on one node, says
much of HOST.
"""

EXACT, SCALED = 0.05, 0.1
NINETY = 1.6449  # standard deviations to either side that hold 90 %
COMMON = {"measured": 1.0, "fitted": 1 / 3, "datasheet": 1 / 1.5, "assumed": 1 / 1.5}
FOLD = 0.05
SIBLING, PRECISION = 1.25, 2.0
UNTILED = 0.5
FAMILY, PROCESSORS = 0.6, 1.0
AGAIN = 0.03
OPERATION, COUSIN = 0.1, 0.05
LIBRARY, DATASHEET = 0.2, 0.3
SHORT = {"inside": 0.45, "between": 1.7, "share": 0.25, "host": 8.0, "disk": 1.0}
CHANGED = 0.05
MEMORY = 0.15
READ = 1.28e8
# fitted to all published tables by `python -m benchmarks.doubt --fit`
WIDTHS = {"STEP": 0.083, "HOST": 0.273, "SOFTWARE": 0.192, "HIDES": 0.915, "LAYOUT": 0.309,
          "MORE": 0.068, "INPUT": 0.182}  # fmt: skip
