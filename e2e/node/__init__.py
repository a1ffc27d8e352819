"""A real Kubernetes with several nodes on one Linux machine, without a container engine.

Each node is a set of namespaces (network, mount, pid, uts, ipc) with a containerd, a kubelet and a
kube-proxy of its own; node1 also runs etcd and the control plane. Needs root. One cluster at a
time on a machine: link names and addresses are fixed.
Lives here: namespaces, network, certificates, configuration and command lines of the components.
Not here: what is deployed on the cluster (../features, ../fixtures).
Start it with `e2e/node/node up`; `README.md` beside this file lists the commands.
"""
