"""Writes that go out a few at a time."""

import asyncio

import pytest

from onggi_operator.apply.together import AT_ONCE, together


async def test_no_more_than_a_few_are_under_way_and_all_are_made() -> None:
    under_way, most, made = 0, 0, []

    async def write(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        made.append(number)

    await together([write(number) for number in range(3 * AT_ONCE + 1)])
    assert (most, made) == (AT_ONCE, list(range(3 * AT_ONCE + 1)))


async def test_a_fault_lets_those_beside_it_end_and_begins_no_other() -> None:
    made = []

    async def write(number: int) -> None:
        await asyncio.sleep(0)
        if number == 1:
            raise ConnectionError(f"write {number}")
        made.append(number)

    with pytest.raises(ConnectionError, match="write 1"):
        await together([write(number) for number in range(3 * AT_ONCE)])
    assert made == [number for number in range(AT_ONCE) if number != 1]
    assert len(asyncio.all_tasks()) == 1
