"""A context that does not fit on the device: its keys and values lie in tiers, attention is exact.

Lives here: context.py (TieredContext: append and attend), layer.py (what one layer holds and
where), share.py (who gets how much of the device), pieces.py (how the middle is cut), source.py and
lane.py (pieces on their way to the device), hot.py and attention_map.py (pieces that stay, and
why), store.py (pages in an agent). May import: attention/, the client, onggi_core, torch. Not here:
engines' interfaces (transformers/), deciding what lies in which tier below the device (the agent).
"""
