"""The core: what Onggi decides, as pure functions and state machines on the standard library.

Lives here: identity of blocks, geometry, the page table of moves, policies, the engine, the wire
codec. Imported by the agent, the client, the operator and the tests alike. Not here: anything that
asks the clock, the disk, a socket or chance; those arrive as arguments and events.
"""
