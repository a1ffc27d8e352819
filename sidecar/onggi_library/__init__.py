"""Contexts that do not fit, in one process and without Kubernetes.

Lives here: manager/ (KVCacheManager: values by step), attention/ (exact attention over pieces of
keys and values), context/ (a context whose pieces lie in tiers), transformers/ (stock models over
it), batch.py (how many sequences at a time) and in_process.py (an agent without a process of its
own). May import: torch, the client, and
the agent's own parts, since the library hosts them in its process. Not here: tiers, policies and
disks (onggi_core and onggi_sidecar; there is one code base).
"""
