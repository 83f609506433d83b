from __future__ import annotations

import asyncio

from backend.door import Door


class Queue:
    """With room for `room` more; whoever comes through takes a place."""

    def __init__(self, room):
        self.room = room
        self.door = Door(lambda: self.room)
        self.came = []

    async def come(self, name):
        await self.door.enter(name)
        self.room -= 1
        self.came.append(name)

    def leave(self, count=1):
        self.room += count
        self.door.open()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def test_whoever_finds_room_goes_through_at_once():
    async def main():
        queue = Queue(2)
        await queue.come("a")
        await queue.come("b")
        assert queue.came == ["a", "b"]

    asyncio.run(main())


def test_those_outside_come_in_by_turn_and_no_newcomer_before_them():
    async def main():
        queue = Queue(0)
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(queue.come(name))
            await settled()
            queue.room += 1  # nobody has been called in yet
            group.create_task(queue.come("d"))
            await settled()
            assert queue.came == []
            queue.door.open()
            await settled()
            assert queue.came == ["a"]
            queue.leave(2)
            await settled()
            assert queue.came == ["a", "b", "c"]
            queue.leave()
        assert queue.came == ["a", "b", "c", "d"]
        assert queue.room == 0

    asyncio.run(main())


def test_the_place_of_one_who_was_called_in_is_not_given_away():
    async def main():
        queue = Queue(0)
        first = asyncio.create_task(queue.come("a"))
        await settled()
        queue.leave()  # "a" is called in, and has not run
        second = queue.come("b")
        second.send(None)  # runs as far as it can
        await first
        assert queue.came == ["a"]
        second.close()

    asyncio.run(main())


def test_the_place_of_one_who_leaves_when_it_was_called_goes_to_the_next():
    async def main():
        queue = Queue(0)
        tasks = [asyncio.create_task(queue.come(name)) for name in "abc"]
        await settled()
        tasks[0].cancel()  # while it waits
        queue.leave()
        tasks[1].cancel()  # after it was called
        await settled()
        assert queue.came == ["c"]
        assert queue.room == 0
        assert tasks[0].cancelled()
        assert tasks[1].cancelled()

    asyncio.run(main())


def test_a_door_that_shuts_tells_all_outside():
    async def main():
        queue = Queue(0)
        tasks = [asyncio.create_task(queue.come(name)) for name in "ab"]
        await settled()
        queue.door.shut(RuntimeError("closed"))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in results] == ["closed", "closed"]

    asyncio.run(main())


def test_one_whose_task_is_cancelled_as_the_door_shuts_takes_no_place_along():
    async def main():
        queue = Queue(0)
        task = asyncio.create_task(queue.come("a"))
        await settled()
        queue.door.shut(RuntimeError("closed"))
        task.cancel()
        await settled()
        assert task.cancelled()
        queue.leave()
        await queue.come("b")
        later = asyncio.create_task(queue.come("c"))
        await settled()
        assert queue.came == ["b"]  # one place, one guest
        later.cancel()

    asyncio.run(main())
