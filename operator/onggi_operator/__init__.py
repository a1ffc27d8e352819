"""The control plane: a webhook that injects agents and a controller that tells what they bought.

Lives here: `inject` (pure: what a pod gets), `webhook` and `heartbeat` (the two HTTPS servers),
`tls` (their certificates), `observe` -> `plan` -> `apply` (pools' status), `kube` (the API, as
little of it as is needed), `handlers.py` (kopf, and only there). May import: onggi_core. Not here:
anything on the path of a request; engines and agents go on without this package running.
"""
