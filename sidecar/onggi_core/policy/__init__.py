"""Policies: which block to give up, and which to let in. They see keys and numbers, never a page.

Begin at tier_policy.py, which is all that a tier needs. ranking.py keeps the leaves of each class
(classes.py) in order; choosers.py has the policies, by name in names.py; reuse.py is what hazard
learns, from history.py's sample; sights.py the doorkeeper's memory; ghosts.py runs every policy on
a sample, in shadow.py's caches of names alone. Not here: whether a block may go now (the engine
holds what is in use) and moving it (the agent's drivers).
"""
