"""The agent: the sidecar that keeps KV blocks in host memory and on disk.

Lives here: the arena (arena/), the disk tier (disk/), the socket server, HTTP, configuration,
heartbeat, and the loop that feeds onggi_core's engine with events and carries out its actions.
May import: onggi_core. Not here: any decision about blocks (onggi_core), anything with torch or
an engine (onggi).
"""
