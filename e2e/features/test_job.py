"""A Job whose pod has an agent completes, and what it did is counted, however short it lived."""

from __future__ import annotations

from datetime import datetime

import pytest
from rig.kubectl import Kubectl, Object, until
from rig.pool import Pool
from rig.stand_in import pool_object, program, template
from rig.workloads import LEADER
from waits import POD_RUNNING_S

BLOCKS = 64
BLOCK_TOKENS = 16


@pytest.mark.usefixtures("pool")
def test_it_completes_and_is_counted(kubectl: Kubectl) -> None:
    pool = Pool(kubectl, "batch")
    kubectl.apply(pool_object(pool.name, "64Mi", "64Mi"), program(), job("batch", pool.name))

    def complete() -> bool:
        return bool(kubectl.get("job", "batch")["status"].get("succeeded") == 1)

    until("the job's end", complete, POD_RUNNING_S)
    (pod,) = kubectl.items("pods", "app=batch")
    assert pod["status"]["phase"] == "Succeeded"
    (agent, client) = pod["status"]["initContainerStatuses"]
    for container in (agent, client, *pod["status"]["containerStatuses"]):
        assert container["state"]["terminated"]["exitCode"] == 0, container
        assert container["restartCount"] == 0
    print(f"the job ran {_ran_s(pod):.0f} s")
    told = kubectl("logs", pod["metadata"]["name"], "--container=vllm")
    assert told.strip() == f'{{"found": {BLOCKS}, "right": {BLOCKS}}}'

    status = pool.until("the job's hits", lambda s: s.get("hits", {}).get("hostBlocks", 0) > 0)
    assert status["hits"] == {"hostBlocks": BLOCKS, "diskBlocks": 0}
    assert status["tokensSaved"] == BLOCKS * BLOCK_TOKENS
    status = pool.until("no pod of it", lambda s: s["pods"]["matched"] == 0)
    assert status["hits"]["hostBlocks"] == BLOCKS


def _ran_s(pod: Object) -> float:
    (engine,) = pod["status"]["containerStatuses"]
    ended = engine["state"]["terminated"]
    began, end = (datetime.fromisoformat(ended[key]) for key in ("startedAt", "finishedAt"))
    return (end - began).total_seconds()


def job(name: str, pool: str) -> Object:
    made = template(name, pool, LEADER, "job", "1", str(BLOCKS))
    made["spec"]["restartPolicy"] = "Never"
    made["spec"].pop("terminationGracePeriodSeconds")  # the agent's last report needs a part of it
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": made},
    }
