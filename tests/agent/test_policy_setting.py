"""Which policy an agent follows: the one ahead, or the one it was told."""

import pytest
from agent_process import StartAgent, chain, ready, until

from onggi_core.policy.names import FIXED


@pytest.mark.parametrize("asked", ["lru", "s3-fifo", "worth-second-sight"])
def test_an_agent_follows_the_policy_that_it_was_told(start: StartAgent, asked: str) -> None:
    client = ready(start(ONGGI_AGENT_POLICY=asked))
    blocks = chain(10)
    client.store(blocks)
    client.load(tuple(blocks))
    assert until("it follows one", lambda: client.stats()["policy"]) == asked
    client.close()


def test_an_agent_that_was_told_none_follows_one_of_them(start: StartAgent) -> None:
    client = ready(start())
    blocks = chain(10)
    client.store(blocks)
    client.load(tuple(blocks))
    assert until("it follows one", lambda: client.stats()["policy"]) in set(FIXED)
    client.close()
