"""How long each thing may take, in one place: a test waits by name and never by a number.

Each is several times what was measured on two cores that also build, so that a slow machine
passes; none is so long that a hang goes unnoticed.
"""

from typing import Final

INSTALLED_S: Final = 180
"""`helm install --wait`: three small Python processes, 10 s."""
ENGINE_READY_S: Final = 300
"""An engine's three processes import torch one after the other: 40 s, 180 s beside four others."""
ENGINE_GONE_S: Final = 60
"""From a pod's deletion to its end: the engine's grace period and the agent's."""
POD_RUNNING_S: Final = 180
"""A pod of images that are on the node: 2 s, with an agent 5 s; a minute with a twentieth of the
cores."""
CONTAINER_BACK_S: Final = 120
"""A killed container is started anew at once the first time, 10 s after the second."""
INJECTING_S: Final = 60
"""A webhook configuration takes effect up to 1.5 s after it was written."""
STATUS_S: Final = 90
"""From an event to the pool's status: a heartbeat of 5 s, and the controller's own pace."""
STORED_S: Final = 120
"""From an answer to its blocks in the agent's index; several tries on a busy machine."""
COUNTED_S: Final = 10
"""From an answer to the figures that tell of its load, which is confirmed in a later step."""
ON_DISK_S: Final = 60
"""From a block in memory to its copy on disk, which is written when the disk is idle."""
ATTACHED_S: Final = 120
"""From an agent's start to the client's next attempt to attach: its back-off is bounded."""
ANSWER_S: Final = 60
"""One completion: 2 s cold."""
LOADED_S: Final = 120
"""A dozen completions from four clients at once."""
POLL_S: Final = 0.5
LOOK_S: Final = 0.2
"""Between two looks at what agents hold; memory changes hands over two of their reports, 1 s."""
GRANTED_S: Final = 60
"""From an agent's start to the memory that it may have: a report, a round, and its touching."""
MOVED_S: Final = 120
"""From a change of what is asked for to the last grant that follows it, 25 s: curves are means over
some reports, and memory changes hands every 10 s."""
ASKED_AGAIN_S: Final = 150
"""From a request that a node put off to the part of it that it takes in, 30 s: a pod's request is
changed once in 10 s."""
ROOM_AGAIN_S: Final = 480
"""From a request that a node put off to the next try at all of it: five minutes."""
NODE_STATUS_S: Final = 60
"""A KVCacheNode is written when something happened, at most once in 30 s."""
RENEWED_S: Final = 60
"""From the right to renew a certificate to one that is served, 4 s: one that has expired is looked
at every 2 s, and the API server's own caches of rights are 1 s behind."""
RESTARTED_S: Final = 60
"""From the first pod that the webhook saw again to the restart of one that it missed, 6 s."""
NODE_LOST_S: Final = 90
"""From a kubelet's end to a node that is not ready, 25 s, and back, 5 s."""
LEASE_S: Final = 60
"""How long an agent is charged after its last word, when its pod is gone; the operator's own."""
UNCHARGED_S: Final = ENGINE_GONE_S + LEASE_S
"""From the deletion of a pod until its node's memory is charged with it no more."""
SETTLED_S: Final = 150
"""From a node's return until its agents are given more: a minute, and what comes before it."""
TAKEN_OVER_S: Final = 90
"""From a leader's end to the next one's first word, 20 s: its Lease ends after 15."""
DRAINED_S: Final = 120
"""Eviction of all of a node's pods, 20 s: an engine's grace period, its agent's, and those of
whatever has a disruption budget, one after the other."""
