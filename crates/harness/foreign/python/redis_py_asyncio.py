"""Contends for a key with the asyncio Lock of redis-py."""

import asyncio

import redis
import redis.asyncio

from contender import TTL_SECONDS, Contender, pause

me = Contender("redis-py-asyncio", redis.__version__)


async def main():
    connection = redis.asyncio.Redis.from_url(me.url)
    await connection.ping()

    def new_lock():
        return connection.lock(me.key, timeout=TTL_SECONDS, sleep=pause(), blocking_timeout=1)

    if me.verb == "hold":
        lock = new_lock()
        assert await lock.acquire(), "it was to be free"
        me.visits += 1
        me.ready()
        await lock.release()
    else:
        me.ready()
        while me.goes_on():
            lock = new_lock()
            if await lock.acquire():
                me.enter()
                await asyncio.sleep(me.hold)
                me.leave()
                await lock.release()
            await asyncio.sleep(pause())
    await connection.aclose()
    me.finish()


asyncio.run(main())
