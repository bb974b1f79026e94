"""Runs training steps: passes in order, tensors between stages, gradients, update.

trainer                    training steps of a plan's part on one device
schedule                   the order of a stage's passes
passing border_order       tensors between passes and stages, and their order
buckets                    gradients that are summed while the backward pass runs
optimizer loss_scale       the update
state_away units_away host_link   state and activations beside the device, and their copies
"""
