"""The executor: starts ranks, measures them, and runs plans for real with torch.distributed.

Only this package imports torch, and only inside the worker processes it starts: the process
that supervises them never does. It knows nothing of predicted seconds.
"""
