// The JavaScript client against a server: messages, requests, logins.
//
// Usage: node core.mjs <plain server> <server with token> <server with users>

import assert from "node:assert/strict";
import { packages, run, take, text, WAIT_MS, withClient } from "./harness.mjs";

const { connect, headers, createInbox } = packages("@nats-io/transport-node");
const [plain, guarded, named] = process.argv.slice(2);

const onPlain = (body) => () => withClient({ servers: plain }, body);

async function refused(options) {
  await assert.rejects(withClient(options, (nc) => nc.flush()), /authorization violation/i);
}

const tests = {
  "a message arrives": onPlain(async (nc) => {
    const sub = nc.subscribe("js.greet.*", { max: 1 });
    nc.publish("js.greet.joe", "hello", { reply: "answers" });
    const [msg] = await take(sub, 1);
    assert.deepEqual([msg.subject, msg.reply, text(msg)], ["js.greet.joe", "answers", "hello"]);
  }),

  "many messages arrive in order": onPlain(async (nc) => {
    const sub = nc.subscribe("js.many", { max: 500 });
    for (let n = 0; n < 500; n++) nc.publish("js.many", String(n));
    const seen = (await take(sub, 500)).map((msg) => Number(text(msg)));
    assert.deepEqual(seen, [...Array(500).keys()]);
  }),

  "a queue shares the work": onPlain(async (nc) => {
    const shares = [[], [], []];
    for (const share of shares) {
      nc.subscribe("js.work", { queue: "crew", callback: (_, msg) => share.push(Number(text(msg))) });
    }
    for (let n = 0; n < 300; n++) nc.publish("js.work", String(n));
    await nc.flush();
    assert.deepEqual(shares.flat().sort((a, b) => a - b), [...Array(300).keys()]);
    assert.ok(shares.every((share) => share.length > 0));
  }),

  "a request is answered": onPlain(async (nc) => {
    nc.subscribe("js.upper", { callback: (_, msg) => msg.respond(text(msg).toUpperCase()) });
    const reply = await nc.request("js.upper", "hello", { timeout: WAIT_MS });
    assert.equal(text(reply), "HELLO");
  }),

  "a request without the shared inbox is answered": onPlain(async (nc) => {
    nc.subscribe("js.own", { callback: (_, msg) => msg.respond("yes") });
    const reply = await nc.request("js.own", "", { timeout: WAIT_MS, noMux: true });
    assert.equal(text(reply), "yes");
  }),

  "one request may have many answers": onPlain(async (nc) => {
    nc.subscribe("js.count", {
      callback: (_, msg) => [0, 1, 2].forEach((n) => msg.respond(String(n))),
    });
    const answers = [];
    const options = { strategy: "count", maxMessages: 3, maxWait: WAIT_MS };
    for await (const msg of await nc.requestMany("js.count", "", options)) {
      answers.push(text(msg));
    }
    assert.deepEqual(answers, ["0", "1", "2"]);
  }),

  "a request nobody hears fails at once": onPlain(async (nc) => {
    const asked = nc.request("js.nobody.home", "", { timeout: WAIT_MS });
    await assert.rejects(asked, (error) => /no responders/i.test(`${error.message} ${error.cause}`));
  }),

  "headers arrive": onPlain(async (nc) => {
    const sub = nc.subscribe("js.headers", { max: 1 });
    const given = headers();
    given.append("Colour", "green");
    given.append("Colour", "blue");
    nc.publish("js.headers", "body", { headers: given });
    const [msg] = await take(sub, 1);
    assert.deepEqual(msg.headers.values("Colour"), ["green", "blue"]);
    assert.equal(text(msg), "body");
  }),

  "unsubscribing after some messages holds": onPlain(async (nc) => {
    const seen = [];
    const sub = nc.subscribe("js.few", { callback: (_, msg) => seen.push(text(msg)) });
    sub.unsubscribe(2);
    for (let n = 0; n < 5; n++) nc.publish("js.few", String(n));
    await nc.flush();
    assert.deepEqual(seen, ["0", "1"]);
  }),

  "draining delivers what is on its way": () =>
    withClient({ servers: plain }, async (publisher) => {
      const seen = [];
      const nc = await connect({ servers: plain, reconnect: false });
      nc.subscribe("js.drained", { callback: (_, msg) => seen.push(text(msg)) });
      await nc.flush();
      for (let n = 0; n < 200; n++) publisher.publish("js.drained", String(n));
      await publisher.flush();
      await nc.drain();
      assert.ok(nc.isClosed());
      assert.equal(seen.length, 200);
    }),

  "without echo own messages stay away": () =>
    withClient({ servers: plain, noEcho: true }, async (nc) => {
      let seen = 0;
      nc.subscribe("js.echoed", { callback: () => seen++ });
      nc.publish("js.echoed", "");
      await nc.flush();
      assert.equal(seen, 0);
    }),

  "verbose and pedantic clients work": () =>
    withClient({ servers: plain, verbose: true, pedantic: true }, async (nc) => {
      const sub = nc.subscribe("js.said", { max: 1 });
      nc.publish("js.said", "x");
      assert.equal(text((await take(sub, 1))[0]), "x");
    }),

  "the client learns about the server": onPlain(async (nc) => {
    assert.equal(nc.info.max_payload, 1048576);
    assert.equal(nc.info.headers, true);
    assert.match(nc.info.version, /^\d+\.\d+\.\d+$/);
    assert.ok((await nc.rtt()) >= 0);
  }),

  "a large message arrives": onPlain(async (nc) => {
    const body = new Uint8Array(1024 * 1024).fill(120);
    const inbox = createInbox();
    const sub = nc.subscribe(inbox, { max: 1 });
    nc.publish(inbox, body);
    assert.equal((await take(sub, 1))[0].data.length, body.length);
  }),

  "login by token": async () => {
    await withClient({ servers: guarded, token: "s3cret" }, (nc) => nc.flush());
    await refused({ servers: guarded, token: "wrong" });
  },

  "login by user and password": async () => {
    await withClient({ servers: named, user: "bob", pass: "b" }, (nc) => nc.flush());
    await refused({ servers: named, user: "bob", pass: "wrong" });
    await refused({ servers: named });
  },

  "a refused publish is reported": () =>
    withClient({ servers: named, user: "amy", pass: "a" }, async (nc) => {
      const reports = nc.status()[Symbol.asyncIterator]();
      nc.publish("theirs", "");
      let report = (await reports.next()).value;
      while (report.type !== "error") report = (await reports.next()).value;
      assert.match(report.error.message, /permissions violation for publish/i);
    }),

  "a refused subscription is reported": () =>
    withClient({ servers: named, user: "amy", pass: "a" }, async (nc) => {
      const sub = nc.subscribe("theirs");
      await assert.rejects(take(sub, 1), /permissions violation for subscription/i);
    }),
};

await run(tests);
