"""What Onggi is held against: memcpy, Redis on a unix socket, plain O_DIRECT reads.

A peer is given its best case where there is a choice, and the file says which.
"""
