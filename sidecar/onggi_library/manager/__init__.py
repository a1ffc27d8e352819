"""Values of a context by step: put, get, prefetch, discard, over device, host memory and disk.

manager.py: what callers see. values.py: nested tensors as one row of bytes and back. pages.py: how
a value is cut into pages. device.py: the device's tier. lower.py: the tiers below it, which are an
agent's, and ledger.py what fits there. ahead.py: bringing values up before they are asked for.
figures.py: stats and their picture. May import: torch, the client, in_process.py. Not here: which
page lies where below the device (the agent decides).
"""
