"""Models whose layers do not all see all tokens, or whose blocks vLLM keeps in several groups.

kinds.py says which blocks such a layer needs, hits.py finds the longest prefix that all of them can
restore, and scheduler.py decides as its namesake above does. It differs where vLLM does: a load
is always waited for and comes whole or not at all, since vLLM takes the failure of single blocks
only where there is one group; and blocks that leave a window are free the next step, so what a
save still reads is pinned (pins.py).
"""
