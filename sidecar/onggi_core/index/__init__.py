"""The index: what the agent knows of its blocks, as columns and no object a block.

Lives here: blocks.py (names, parents, depth), pages.py (the life of each block's page in one tier),
adopting.py (a million blocks at once), ids.py (runs of numbers). May import: the core's page and
slab. Not here: which block may go (policy) or when (engine).
"""
