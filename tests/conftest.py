"""For every suite."""

import asyncio

# Else the first asynchronous test makes a loop of its own to save and restore, which nobody closes
# (asyncio.get_event_loop() makes one only while none was ever set).
asyncio.set_event_loop(None)
