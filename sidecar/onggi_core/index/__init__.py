"""The index: what the agent knows of its blocks, as columns and no object a block.

Lives here: blocks.py (names, parents, depth), keytable.py (from a key to its block), pages.py (the
life of each block's page in one tier), adopting.py (a million blocks at once), weight.py (what all
of it takes), ids.py, digests.py and places.py (runs of numbers, keys and places). May import: the
core's page. Not here: which block may go (policy) or when (engine).
"""
