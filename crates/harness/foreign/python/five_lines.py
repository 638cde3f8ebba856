"""Contends for a key with the five lines of the tutorials: SET NX EX with a uuid, compare and delete."""

import uuid

import redis

from contender import TTL_SECONDS, Contender

RELEASE = """
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
else
    return 0
end
"""

me = Contender("five-lines", f"redis-py-{redis.__version__}")
connection = redis.Redis.from_url(me.url)
connection.ping()


def acquire():
    token = str(uuid.uuid4())
    if connection.set(me.key, token, nx=True, ex=TTL_SECONDS):

        def release():
            assert connection.eval(RELEASE, 1, me.key, token) == 1, "it was not ours any more"

        return release
    return None


me.run(acquire)
