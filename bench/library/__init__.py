"""Contexts that do not fit on the device: what a token costs when they lie in tiers.

Lives here: scenarios.py (what is measured, at which scale), run.py (a child with torch that does
it) and part.py (the bench's part). May import: onggi_library, in run.py alone.
"""
