"""Writing to the API what was planned: a pool's status (`status`), an Event (`events`). May import:
kube, plan. Not here: deciding."""
