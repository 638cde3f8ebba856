// Contends for a key with redlock, of the major version that stands in REDLOCK, through ioredis.
//
//     redlock.js contend URL KEY SECONDS JOURNAL HOLD_MS
//     redlock.js hold URL KEY
//
// Several URLs, with commas between them, are the nodes of one quorum.
//
// See contender.py for what is said when.

"use strict";

const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");

const Redis = require("ioredis");

const TTL_MS = 20000;
// Tries of one acquire; between two of them are 5 to 20 ms.
const TRIES = { retryCount: 50, retryDelay: 12, retryJitter: 8 };

const [verb, url, key, seconds, journalPath, holdMs] = process.argv.slice(2);
const major = process.env.REDLOCK;
const name = `redlock-${major}`;
// What it says of itself, not what was asked for.
const folder = path.join(process.env.NODE_PATH, major === "4" ? "redlock4" : "redlock");
const about = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
const version = about.version.replace(/^v/, "");

function open(nodes) {
  if (major === "4") {
    const Redlock = require("redlock4");
    const redlock = new Redlock(nodes, TRIES);
    const busy = (error) => error.name === "LockError";
    return { busy, lock: () => redlock.lock(key, TTL_MS), release: (lock) => lock.unlock() };
  }
  const { default: Redlock, ExecutionError } = require("redlock");
  const redlock = new Redlock(nodes, TRIES);
  const busy = (error) => error instanceof ExecutionError;
  return { busy, lock: () => redlock.acquire([key], TTL_MS), release: (lock) => lock.release() };
}

function say(facts) {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

async function ready() {
  const lines = readline.createInterface({ input: process.stdin });
  say({ client: name, version });
  await new Promise((done) => lines.once("line", done));
  lines.close();
}

async function main() {
  const nodes = url.split(",").map((one) => new Redis(one));
  await Promise.all(nodes.map((node) => node.ping()));
  const client = open(nodes);
  let visits = 0;
  if (verb === "hold") {
    const lock = await client.lock();
    visits += 1;
    await ready();
    await client.release(lock);
  } else {
    const journal = fs.openSync(journalPath, "a");
    const write = (sign) => fs.writeSync(journal, `${sign} ${name} ${process.pid}\n`);
    await ready();
    const until = performance.now() + seconds * 1000;
    while (performance.now() < until) {
      let lock = null;
      try {
        lock = await client.lock();
      } catch (error) {
        if (!client.busy(error)) throw error;
      }
      if (lock) {
        visits += 1;
        write("+");
        await sleep(Number(holdMs));
        write("-");
        await client.release(lock);
      }
      await sleep(5 + Math.random() * 15);
    }
  }
  say({ acquired: visits });
  await Promise.all(nodes.map((node) => node.quit()));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
