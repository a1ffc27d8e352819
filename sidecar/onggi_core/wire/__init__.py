"""The protocol between client and agent, as bytes: frames and messages, nothing that moves them.

Lives here: frame.py (header, limits, status codes), requests.py, replies.py, locate.py, cut.py (a
stream cut into frames). Written up for other languages in docs/protocol.md. Not here: sockets (the
agent's server, the client's channel) and what a message means (onggi_core.engine).
"""
