"""Connectors: how an engine's own plug points reach the client, one folder an engine.

Lives here: vllm/, sglang/, and what they share: environment.py, weights.py. May import: onggi,
onggi_core and that engine (lazily, so that this package can be imported anywhere). Not here: the
client itself.
"""
