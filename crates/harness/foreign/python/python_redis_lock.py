"""Contends for a key with python-redis-lock, which puts `lock:` before the name that it is given."""

import logging

import redis
import redis_lock

from contender import TTL_SECONDS, Contender

me = Contender("python-redis-lock", redis_lock.__version__)
# It complains of each try at what somebody else holds.
logging.getLogger("redis_lock").setLevel(logging.ERROR)
connection = redis.StrictRedis.from_url(me.url)
connection.ping()
prefix, _, name = me.key.partition(":")
assert prefix == "lock", "it cannot lock any other key"


def acquire():
    # Its own waits end by a signal that only its own releases give, so it tries again as the others do.
    lock = redis_lock.Lock(connection, name, expire=TTL_SECONDS)
    return lock.release if lock.acquire(blocking=False) else None


me.run(acquire)
