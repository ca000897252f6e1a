"""The GPUs of the machine the server runs on, sampled by the agent's own code, as bodies like those that agents send."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from loadfactor.base.errors import LoadfactorError
from loadfactor_agent.errors import AgentError
from loadfactor_agent.notices import Notices
from loadfactor_agent.sampler import Sampler
from loadfactor_agent.write_request import pack_readings

ORIGIN: Final = "agent"
EVERY_S: Final = 10.0


async def sample_own_gpus(take: Callable[[bytes], Awaitable[object]], say: Callable[[str], None]) -> None:
    """Sample until cancelled, and hand each body to `take`; returns at once where this machine has no driver or no GPU.

    What `take` refuses is said and lost: the next sample follows soon.
    """
    notices = Notices(say)
    try:
        sampler = await asyncio.to_thread(Sampler, notices)
    except AgentError:
        return
    if not sampler.gpus:
        return
    say(f"samples the {sampler.gpus} GPUs of this machine every {EVERY_S:g} s")
    while True:
        readings = await asyncio.to_thread(sampler.sample)
        try:
            await take(pack_readings(readings))
            notices.end("take", "samples of this machine are stored again")
        except LoadfactorError as error:
            notices.say("take", f"samples of this machine cannot be stored: {error}")
        await asyncio.sleep(EVERY_S - time.time() % EVERY_S)
