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
    assert list(rendered([NODE], None)) == [
        "n1: 384Mi granted of 512Mi offered",
        "  team-a/one (pool chat): 256Mi",
        "  team-b/two (pool chat): 128Mi",
        "    would move 128Mi -> 256Mi (WorthMore): it pays",
    ]


def test_a_namespace_sees_its_own_pods() -> None:
    assert list(rendered([NODE], "team-a")) == [
        "n1: 384Mi granted of 512Mi offered",
        "  team-a/one (pool chat): 256Mi",
    ]


def test_a_cluster_without_agents_says_so() -> None:
    assert list(rendered([], None)) == ["No node has agents yet."]
