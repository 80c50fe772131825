"""Decode timing: which blocks run in which order, and what of a block is compared."""
