"""Host tier: one memory-backed file that engines map and the agent owns.

Lives here: the file's format (header), its creation and retirement (file), and the thread that
touches extents before they are offered (toucher). May import: nothing of ours but errors.
Imported by: the agent's assembly and the disk tier's I/O. Not here: which page holds which
block (onggi_core's engine).
"""
