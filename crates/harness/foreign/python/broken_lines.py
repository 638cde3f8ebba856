"""Contends for a key with two mistakes that people make, so that it is seen whether the judge notices.

    BREAK=expires|deletes broken_lines.py contend ..

`expires`: the lock runs out in the middle of the work. `deletes`: whoever is done deletes the key, whether or not he
had it, and then tries again.
"""

import os
import uuid

import redis

import contender
from contender import TTL_SECONDS, Contender

mistake = os.environ["BREAK"]
me = Contender(f"five-lines-{mistake}", f"redis-py-{redis.__version__}")
connection = redis.Redis.from_url(me.url)
connection.ping()


if mistake == "deletes":
    # Long enough that others get in, whose lock there is to delete.
    contender.pause = lambda: 8 * me.hold


def release():
    connection.delete(me.key)


def acquire():
    expires = mistake == "expires"
    ttl = int(me.hold * 1000 / 4) if expires else TTL_SECONDS * 1000
    for _ in range(1 if expires else 2):
        if connection.set(me.key, str(uuid.uuid4()), nx=True, px=ttl):
            return (lambda: None) if expires else release
        if not expires:
            release()
    return None


me.run(acquire)
