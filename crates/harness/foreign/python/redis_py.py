"""Contends for a key with the Lock of redis-py."""

import redis

from contender import TTL_SECONDS, Contender, pause

me = Contender("redis-py", redis.__version__)
connection = redis.Redis.from_url(me.url)
connection.ping()


def acquire():
    lock = connection.lock(me.key, timeout=TTL_SECONDS, sleep=pause(), blocking_timeout=1)
    return lock.release if lock.acquire() else None


me.run(acquire)
