"""The board: which blocks lie in the arena, written by the agent where clients read it themselves.

Lives here: layout.py (where its parts lie), writer.py (the agent's side), reader.py (a client's).
Both work on a buffer that is handed to them. Not here: what is shown (engine), and who copies.
"""
