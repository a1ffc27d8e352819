"""A controller under load: a real API server and the real controller, as a process, with the
nodes, pods and agents of a large cluster, which are made here.

Lives here: the servers (`site`), what the objects look like (`objects`) and how they get there
(`cluster`), the agents and their pods' coming and going (`agents`, `churn`), what is read off
(`watching`), and the figures (`part`). May import: bench, onggi_core, aiohttp. Not here: the
controller's own code, which is measured from outside.
"""
