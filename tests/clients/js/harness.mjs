// What every script of this directory shares: the client's packages, connections, one line of JSON
// per test. The Python side starts the servers, knows the names, and turns lines into results.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const packages = createRequire(pathToFileURL(`${process.env.NODE_PACKAGES}/`));
const { connect } = packages("@nats-io/transport-node");

export const WAIT_MS = 5000;
const decoder = new TextDecoder();
export const text = (msg) => decoder.decode(msg.data);

export async function withClient(options, body) {
  const nc = await connect({ reconnect: false, timeout: WAIT_MS, ...options });
  try {
    return await body(nc);
  } finally {
    await nc.close();
  }
}

export async function take(iterator, count) {
  const taken = [];
  for await (const one of iterator) {
    taken.push(one);
    if (taken.length === count) break;
  }
  return taken;
}

export async function run(tests) {
  for (const [name, test] of Object.entries(tests)) {
    const failure = await test().then(() => null, (error) => String(error.stack ?? error));
    console.log(JSON.stringify({ name, failure }));
  }
}
