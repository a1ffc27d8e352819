"""What Onggi is held against: memcpy, Redis, Mooncake, LMCache, fio, and real engines.

A peer is given its best case where there is a choice, and the file says which. Files named
..._worker.py run in the peer's own interpreter (venvs.py) and import nothing of Onggi's.
"""
