"""The Kubernetes API, as little of it as is needed: JSON in and out, paged lists, watches.

Lives here: how to reach it (`access`), calls (`client`), a cache kept by list and watch
(`reflector`). Not a general client: a few hundred lines with every time limit and size of our own
choosing stand in for a library whose import alone takes more memory than the rest of the operator.
May import: aiohttp. Not here: what the objects mean.
"""
