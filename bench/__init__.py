"""`python -m bench`: what Onggi costs and brings, each figure beside a peer's from the same run.

Lives here: the order of it all (__main__.py), how things are timed (timing.py), what comes out
(rows.py, table.py), the agent under test (agent.py); micro/ has one file a question, peers/ one a
peer. May import: onggi, onggi_core, and sizes from onggi_sidecar. Nothing here fails on the clock:
a bench reports, tests judge.
"""
