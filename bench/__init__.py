"""`python -m bench`: what Onggi costs and brings, each figure beside a peer's from the same run.

Lives here: the parts by name (parts.py, __main__.py), how things are timed (timing.py), what comes
out (entries.py, report.py, machine.py), the agent under test (agent.py) and other children
(children.py); micro/ has one file a question, peers/ one a peer. May import: onggi, onggi_core, and
of onggi_sidecar its disk tier's files and sizes. Nothing here fails on the clock: a bench reports,
tests judge.
"""
