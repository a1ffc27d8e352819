"""Disk tier: pages in preallocated files on local disk, found again after a restart.

Lives here: the claim on a folder (folder), the formats (layout, segment), what lies where (table,
scan, columns), the I/O (device, stretch, schedule, workers), the files (segments), room for them
(room) and the tier that joins them (tier). May import: onggi_core's wire-level types and the arena.
Imported by: the agent's assembly. Not here: which block goes to which slot and which is given up
(onggi_core's engine).
"""
