"""Sends the messages of a plan between ranks, or plays them, and says what they should be.

mesh       coordinates of each rank, and its groups
calls      the call of torch.distributed for each collective operation
wire       messages, counted and timed by kind
mock       a wire that sends nothing
expected   bytes and calls that a plan's messages should have
replay     a plan's messages without its work
"""
