"""Policies: which block to give up. They rank keys and never see a page, a file or a byte.

Lives here: one file a policy. Not here: whether a block may go now (the engine holds what is in
use) and moving it (the agent's drivers).
"""
