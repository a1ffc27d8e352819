"""What the features' tests stand on: a cluster, Onggi installed in it, engines, and evidence.

Lives here: kubectl and helm, reaching and killing containers, the engine as a client sees it, an
agent's figures, what is kept of a failure. Not here: what is asserted (../features), how long
anything may take (../waits.py), how the cluster itself comes up (../node).
"""
