"""The admission webhook: a stateless HTTPS server, two or more of it.

Lives here: AdmissionReview in and out (`review`, pure), where pools and what namespaces allow come
from (`sources`), what was injected before (`revisions`), which Kubernetes this is (`kubernetes`),
the server (`server`), keeping the webhook configuration's caBundle current (`configuration`), and
the wiring (`main`). May import: inject, kube, tls. Not here: what a pod gets (inject). Whatever
goes wrong, the pod is admitted.
"""
