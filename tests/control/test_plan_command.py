"""What `python -m onggi_operator plan` prints."""

from onggi_operator.plan_command import rendered

MIB = 1 << 20
GRANTS = [
    {
        "podUID": pod,
        "namespace": namespace,
        "pod": pod,
        "pool": "chat",
        "memoryBytes": size * MIB,
    }
    for namespace, pod, size in (("team-a", "one", 256), ("team-b", "two", 128))
]
NODE = {
    "metadata": {"name": "n1"},
    "status": {
        "offered": {"memoryBytes": 512 * MIB},
        "granted": {"memoryBytes": 384 * MIB},
        "grants": GRANTS,
        "moves": [
            {
                "podUID": "two",
                "fromBytes": 128 * MIB,
                "toBytes": 256 * MIB,
                "reason": "WorthMore",
                "message": "it pays",
                "dryRun": True,
            }
        ],
    },
}


def test_each_node_tells_what_it_shares_out_and_what_would_be_moved_and_why() -> None:
    assert list(rendered([NODE], [], None)) == [
        "n1: 384Mi granted of 512Mi offered",
        "  team-a/one (pool chat): 256Mi",
        "  team-b/two (pool chat): 128Mi",
        "    would move 128Mi -> 256Mi (WorthMore): it pays",
    ]


def test_a_namespace_sees_its_own_pods() -> None:
    assert list(rendered([NODE], [], "team-a")) == [
        "n1: 384Mi granted of 512Mi offered",
        "  team-a/one (pool chat): 256Mi",
    ]


def test_a_cluster_without_agents_says_so() -> None:
    assert list(rendered([], [], None)) == ["No node has agents yet."]


def pool(namespace: str, quota: object, reason: str = "Allocated") -> dict[str, object]:
    conditions = [{"type": "CapacityAllocated", "reason": reason}]
    status = {"quota": quota, "conditions": conditions}
    return {"metadata": {"namespace": namespace, "name": "chat"}, "status": status}


def test_quotas_are_told_with_what_is_taken_of_them() -> None:
    both = {
        "hard": {"memoryBytes": 512 * MIB, "diskBytes": 0},
        "used": {"memoryBytes": 256 * MIB, "diskBytes": 0},
    }
    memory = {"hard": {"memoryBytes": 64 * MIB}, "used": {"memoryBytes": 64 * MIB}}
    pools = [
        pool("team-a", both),
        pool("team-b", memory, "QuotaReached"),
        pool("team-c", None),
        pool("team-d", {}),
        {"metadata": {"namespace": "team-e", "name": "new"}},
    ]
    told = [line for line in rendered([NODE], pools, None) if line.startswith("quota")]
    assert told == [
        "quota of team-a/chat: 256Mi of 512Mi memory, 0 of 0 disk taken",
        "quota of team-b/chat: 64Mi of 64Mi memory taken (QuotaReached)",
    ]
    assert list(rendered([NODE], pools, "team-b"))[-1] == told[1]


def test_an_agent_that_was_not_heard_yet_is_told_as_such() -> None:
    grants = [{**GRANTS[0], "unheard": True}]
    node = {**NODE, "status": {**NODE["status"], "grants": grants, "moves": []}}
    assert list(rendered([node], [], None))[1:] == [
        "  team-a/one (pool chat): 256Mi, unheard",
    ]
