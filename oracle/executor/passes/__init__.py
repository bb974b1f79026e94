"""Runs the operations of one device forward and backward, with the exchanges that cuts need.

forward              the forward pass of a chunk
operators one_kernel the arithmetic of operations, and functions that one kernel does
products             convolutions, matrix products and pools with their exchanges
exchange             collective operations inside a pass, with their gradients
frame spatial        samples cut in space, and their borders
context              attention over tokens that are cut
experts              mixtures: tokens sent to experts and back
dropout              the same mask, however a tensor is cut
"""
