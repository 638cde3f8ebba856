"""Contends for a name in etcd with `etcdctl lock`: one process for each time, which holds until it is interrupted."""

import os
import signal
import subprocess

from contender import TTL_SECONDS, Contender

CTL = [os.environ["ETCDCTL"], "--endpoints"]
# Of the first two versions only if they are asked.
os.environ["ETCDCTL_API"] = "3"

version = subprocess.run([CTL[0], "version"], check=True, capture_output=True, text=True).stdout
me = Contender("etcdctl-lock", version.split("\n")[0].split(": ")[1])


def acquire():
    words = [*CTL, me.url, "lock", f"--ttl={TTL_SECONDS}", me.key]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    # It says its key once it has the lock.
    assert holder.stdout.readline().startswith(me.key), "it does not have the lock"

    def release():
        holder.send_signal(signal.SIGINT)
        holder.communicate(timeout=TTL_SECONDS)

    return release


me.run(acquire)
