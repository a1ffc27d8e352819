"""Certificates of our own making: a CA and one serving certificate in a Secret.

Lives here: making and judging them (`certificates`, pure but for the keys' dice) and keeping the
Secret and a running server current (`keeper`). May import: kube, cryptography. Not here: who is
told about the CA (the webhook configuration is the webhook's, the agents' environment the plan's).
"""
