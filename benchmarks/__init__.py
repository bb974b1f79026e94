"""Figures the README and the docs quote, each reprinted by one command."""
