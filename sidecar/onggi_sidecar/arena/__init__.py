"""Host tier: one memory-backed file that engines map and the agent owns.

Lives here: its creation and retirement (file), the thread that touches extents before they are
offered (toucher), the huge pages it asks for (huge), what moves in from an agent that died
(leftover), and how memory goes back (holes). The format of its first bytes is
onggi_core.arena_header, which clients read too.
Imported by: the agent's assembly and the disk tier's I/O. Not here: which page holds which
block (onggi_core's engine).
"""
