"""Exact attention over keys and values that come in pieces.

partial.py: what one piece contributes, and how contributions are merged. visible.py: who may see
whom. kernel.py: one piece on one device. streaming.py: all pieces in turn, the next in flight while
one is computed. skipping.py: which pieces cannot matter, with proof. May import: torch. Not here:
where pieces come from (a source is anything that gives pieces).
"""
