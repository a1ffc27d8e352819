"""Replay: what hit rate a tier of some size would have had on a recorded stream of requests.

Lives here: trace.py (a public trace's lines), simulate.py (the engine's own policies over it),
belady.py (the limit), report.py (sizes by policies), table.py and picture.py (the report as text
and as SVG). May import: onggi_core.policy. Not here: files, processes and the command line.
"""
