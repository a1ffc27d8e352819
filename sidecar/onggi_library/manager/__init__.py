"""Values of a context by step: put, get, prefetch, discard, over device, host memory and disk.

manager.py: what callers see. values.py: nested tensors as one row of bytes and back. pages.py: how
a value is cut into pages. device.py: the device's tier. lower.py: the tiers below it, which are an
agent's, below.py what values look like there, and ledger.py what fits. ahead.py: bringing values up
before they are asked for. foresight.py and hot.py: what is learned of earlier gets. kept.py,
journal.py and forms.py: steps that outlive their process. tally.py and figures.py: stats and their
picture. May import: torch, the client, in_process.py. Not here: which
page lies where below the device (the agent decides).
"""
