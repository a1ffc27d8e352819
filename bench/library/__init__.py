"""Contexts that do not fit on the device: what a token costs when they lie in tiers.

Lives here: scenarios.py (what is measured, at which scale), run.py (a child with torch that does
it), limits.py (what nobody could be faster than), stock.py (a child that tries without Onggi),
part.py (the bench's part) and page.py (its table). May import: onggi_library, in run.py and
limits.py alone.
"""
