"""Contends for a name in ZooKeeper with the Lock of kazoo, told that Curator's names stand in the same line."""

import logging

import kazoo.version
from kazoo.client import KazooClient

from contender import TTL_SECONDS, Contender

logging.basicConfig()
me = Contender("kazoo", kazoo.version.__version__)
client = KazooClient(hosts=me.url, timeout=TTL_SECONDS)
client.start()
lock = client.Lock(me.key, "kazoo", extra_lock_patterns=["-lock-"])


def acquire():
    lock.acquire()
    return lock.release


try:
    me.run(acquire)
finally:
    client.stop()
