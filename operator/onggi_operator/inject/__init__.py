"""What a pod is given: pure functions from pod and pool to a JSON patch, or to a reason why not.

Lives here: reading the pod's wishes (`request`), finding the engine (`engine`), what the user has
set already (`conflicts`), what the engine's command does to the variables that we add
(`blind_spots`, which reads it with `shell`), what the namespace allows and has left (`namespace`,
`limits`, `quota`, both on `usage`), which agent (`revision`), the containers (`containers`), where
the pod had best run (`affinity`), the patch (`patch`), all joined in `plan`. May import:
onggi_core, names, pool. Not here: HTTP, the API server, clocks. A conflict is always a skip with a
reason; nothing of the user's is ever replaced.
"""
