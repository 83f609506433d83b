"""10,000 short requests streamed with random cancels: what is left over, and how memory grows.

    python benchmarks/serving_memory.py [--requests 10000] [--step-ms 1]

Prints resident memory after each tenth, blocks, tasks and threads at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import threading
from time import monotonic

import numpy as np
import psutil

from backend.config import EngineConfig
from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from backend.serving import AsyncEngine
from policies.fcfs import FCFS

BLOCKS = 400


async def visit(engine: AsyncEngine, length: int, leave_after: int) -> None:
    got = 0
    async for _ in engine.generate([1] * 20, length):
        got += 1
        if got >= leave_after:
            break


async def serve(device: RealTimeDevice, requests: int) -> None:
    rng = np.random.default_rng(0)
    process = psutil.Process()
    part = max(1, requests // 10)
    async with AsyncEngine(device, FCFS(), EngineConfig(max_num_seqs=64, max_waiting=128)) as engine:
        for start in range(0, requests, part):
            began = monotonic()
            lengths = rng.integers(1, 30, part)
            leaves = np.where(rng.random(part) < 0.3, rng.integers(1, 10, part), lengths + 1)
            visits = (visit(engine, int(n), int(leave)) for n, leave in zip(lengths, leaves, strict=True))
            await asyncio.gather(*visits)
            gc.collect()
            rss = process.memory_info().rss / 2**20
            print(f"{start + part:6d} requests  {part / (monotonic() - began):7.0f} a second  RSS {rss:7.1f} MiB")
        await engine.close(drain=True)
        pool = engine.engine.pool
        print(f"blocks allocated {pool.allocated} of {pool.num_blocks}, live requests {len(engine.engine.live)}")
    print(f"tasks left {len(asyncio.all_tasks()) - 1}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--step-ms", type=float, default=1.0)
    arguments = parser.parse_args()
    threads = threading.active_count()
    device = RealTimeDevice(ConstantCost(arguments.step_ms), num_blocks=BLOCKS, max_model_len=512)
    asyncio.run(serve(device, arguments.requests))
    device.shutdown()
    print(f"threads left {threading.active_count() - threads}")


if __name__ == "__main__":
    main()
