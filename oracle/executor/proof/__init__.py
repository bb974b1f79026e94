"""Proves on the machine at hand that the executor works right, and measures how fast it is.

plans      small models, and plans of every strategy and of pairs of them
equality   a plan trains as one device does
exchanges  every exchange delivers what it should
rates      bytes a second of memory and of exchanges
machine    all of it on the ranks at hand, within some seconds
"""
