"""Runs plans for real with torch.distributed and times them; it knows no predicted seconds.

Only this room imports torch (and `readers/importers/torch.py`), and only inside the worker
processes that it starts: the process that supervises them never does.

question                                         what results are of, and what differs
plan_run timed_steps step_trace                  one plan to run, steps of it, one as profiled
run launch nursery rank heartbeat world faults records peers   starting and watching ranks
collectives profile measured                     what is measured: exchanges, rows, whole plans
machine hardware disk                            what a machine has and does, in two minutes
kernel_shapes kernel_calls                       kernels that are timed one by one
mesh calls wire mock replay expected             who exchanges with whom, and the messages
ordered                                          gloo that keeps to the order that NCCL documents
exchange frame spatial context                   exchanges inside a pass, with their gradients
agreement/                                       gradients that are compressed, served, averaged
steps batch schedule passing buckets clock        a training step, pass by pass
optimizer loss_scale                             its update
stage_border border_order                        what crosses between stages, and in which order
forward products spans operators one_kernel      the forward pass of one device
row_steps row_timer lockstep                     its rows timed, and how ranks wait for each other
dropout                                          the same mask, however a tensor is cut
experts                                          mixtures: tokens on their way to experts and back
away beside units_away host_link                 what lies beside the device, and its copies
memory_count                                     bytes of tensors alive while a step runs
local_model graph cuts parts weights             the model's layers, cut as the plan cuts them
supported                                        what it can run
engines/                                         what runs a plan: itself, or PyTorch's own classes
pytorch/                                         the model as modules, wrapped and trained by them
loading/                                         samples, read for real
checkpointing/                                   checkpoints, failures and restarts, for real
proof/                                           what runs here is right, and how fast it is
"""
