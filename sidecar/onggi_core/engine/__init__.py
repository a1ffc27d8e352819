"""The engine: what the agent decides. `Engine.step(event, now_s)` answers with the actions to do.

Lives here: events.py and actions.py (the whole interface), engine.py (which event wakes what),
then one file an idea: sessions, lookup, stores, loads, promotion, writeback, adoption; state.py
holds what they share and tier.py the room in one tier. May import: the core. Not here: sockets,
files, threads, the clock: the agent's shell turns what happens into events and does the actions.
"""
