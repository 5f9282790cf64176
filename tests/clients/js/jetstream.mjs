// The JavaScript client's JetStream, buckets and object stores against a server.
//
// Usage: node jetstream.mjs <server with JetStream>

import assert from "node:assert/strict";
import { packages, run, take, text, WAIT_MS, withClient } from "./harness.mjs";

const { headers, nanos } = packages("@nats-io/transport-node");
const { AckPolicy, DeliverPolicy, jetstream, jetstreamManager, RetentionPolicy } = packages(
  "@nats-io/jetstream",
);
const { Kvm } = packages("@nats-io/kv");
const { Objm } = packages("@nats-io/obj");

const [server] = process.argv.slice(2);
const COUNT = 50;
let made = 0;

const onServer = (body) => () => withClient({ servers: server }, body);
const numbers = (n) => [...Array(n).keys()];

/** A stream of its own, with so many messages. */
async function filled(nc, count, config = {}) {
  const jsm = await jetstreamManager(nc);
  const name = `S${process.pid}_${made++}`;
  await jsm.streams.add({ name, subjects: [`${name}.>`], ...config });
  const js = jetstream(nc);
  for (const n of numbers(count)) await js.publish(`${name}.${n % 5}`, String(n));
  return { js, jsm, name };
}

/** A consumer of its own. */
async function consuming(nc, count, config = {}, stream = {}) {
  const { js, jsm, name } = await filled(nc, count, stream);
  const durable = `C${made++}`;
  await jsm.consumers.add(name, { durable_name: durable, ack_policy: AckPolicy.Explicit, ...config });
  return { js, jsm, name, durable, consumer: await js.consumers.get(name, durable) };
}

const bucket = async (nc, options = {}) => new Kvm(nc).create(`B${process.pid}_${made++}`, options);
const store = async (nc, options = {}) => new Objm(nc).create(`O${process.pid}_${made++}`, options);

const tests = {
  "the account tells what it holds": onServer(async (nc) => {
    const { jsm } = await filled(nc, 1);
    const info = await jsm.getAccountInfo();
    assert.ok(info.streams >= 1);
    assert.ok(info.storage > 0);
  }),

  "a stream is made, changed, listed and deleted": onServer(async (nc) => {
    const { jsm, name } = await filled(nc, 3);
    const changed = await jsm.streams.update(name, { max_msgs: 2 });
    assert.deepEqual([changed.config.max_msgs, changed.state.messages], [2, 2]);
    const names = [];
    for await (const one of jsm.streams.names()) names.push(one);
    assert.ok(names.includes(name));
    assert.ok(await jsm.streams.delete(name));
    await assert.rejects(jsm.streams.info(name), /stream not found/);
  }),

  "a publish is acknowledged with its sequence": onServer(async (nc) => {
    const { js, name } = await filled(nc, 4);
    const ack = await js.publish(`${name}.x`, "hello");
    assert.deepEqual([ack.stream, ack.seq, ack.duplicate], [name, 5, false]);
  }),

  "a message with the same id is stored once": onServer(async (nc) => {
    const { js, name } = await filled(nc, 0);
    await js.publish(`${name}.x`, "1", { msgID: "a" });
    assert.equal((await js.publish(`${name}.x`, "2", { msgID: "a" })).duplicate, true);
  }),

  "what is expected is checked": onServer(async (nc) => {
    const { js, name } = await filled(nc, 2);
    const expect = { lastSequence: 1 };
    await assert.rejects(js.publish(`${name}.x`, "", { expect }), /wrong last sequence/);
    await js.publish(`${name}.x`, "", { expect: { lastSequence: 2, streamName: name } });
  }),

  "a publish that no stream takes fails at once": onServer(async (nc) => {
    await assert.rejects(jetstream(nc).publish("nobody.takes.this", ""), (error) =>
      /no stream|no responders|503/i.test(`${error} ${error.cause}`));
  }),

  "a message is read by its sequence, and removed": onServer(async (nc) => {
    const { jsm, name } = await filled(nc, 3);
    assert.equal(text(await jsm.streams.getMessage(name, { seq: 2 })), "1");
    assert.ok(await jsm.streams.deleteMessage(name, 2));
    assert.equal(await jsm.streams.getMessage(name, { seq: 2 }), null);
  }),

  "a purge takes the messages of a subject": onServer(async (nc) => {
    const { jsm, name } = await filled(nc, 10);
    assert.equal((await jsm.streams.purge(name, { filter: `${name}.1` })).purged, 2);
    assert.equal((await jsm.streams.info(name)).state.messages, 8);
  }),

  "messages are read directly": onServer(async (nc) => {
    const { jsm, name } = await filled(nc, 5, { allow_direct: true });
    const last = await jsm.direct.getMessage(name, { last_by_subj: `${name}.3` });
    assert.deepEqual([text(last), last.seq, last.subject], ["3", 4, `${name}.3`]);
  }),

  "a batch is fetched and acknowledged": onServer(async (nc) => {
    const { consumer } = await consuming(nc, COUNT);
    const messages = await take(await consumer.fetch({ max_messages: COUNT }), COUNT);
    assert.deepEqual(messages.map((msg) => Number(text(msg))), numbers(COUNT));
    for (const msg of messages) assert.ok(await msg.ackAck());
    const info = await consumer.info();
    assert.deepEqual([info.num_ack_pending, info.num_pending], [0, 0]);
  }),

  "a fetch of more than there is ends": onServer(async (nc) => {
    const { consumer } = await consuming(nc, 3);
    const seen = [];
    for await (const msg of await consumer.fetch({ max_messages: 10, expires: 1000 })) {
      seen.push(text(msg));
    }
    assert.deepEqual(seen, ["0", "1", "2"]);
  }),

  "next gives one message, or none": onServer(async (nc) => {
    const { consumer } = await consuming(nc, 1);
    assert.equal(text(await consumer.next({ expires: 1000 })), "0");
    assert.equal(await consumer.next({ expires: 1000 }), null);
  }),

  "consuming goes on with what comes": onServer(async (nc) => {
    const { js, name, consumer } = await consuming(nc, 10);
    const messages = await consumer.consume({ max_messages: 5 });
    const publishing = (async () => {
      for (const n of numbers(10)) await js.publish(`${name}.x`, String(10 + n));
    })();
    const seen = [];
    for await (const msg of messages) {
      msg.ack();
      seen.push(Number(text(msg)));
      if (seen.length === 20) break;
    }
    await publishing;
    assert.deepEqual(seen, numbers(20));
  }),

  "a message refused comes again": onServer(async (nc) => {
    const { consumer } = await consuming(nc, 1);
    (await consumer.next({ expires: WAIT_MS })).nak();
    const again = await consumer.next({ expires: WAIT_MS });
    assert.ok(again.redelivered);
    assert.equal(again.info.deliveryCount, 2);
    again.term("enough");
    await nc.flush();
    assert.equal((await consumer.info()).num_ack_pending, 0);
  }),

  "an ordered consumer reads all in order": onServer(async (nc) => {
    const { js, name } = await filled(nc, COUNT);
    const consumer = await js.consumers.get(name);
    const messages = await take(await consumer.consume(), COUNT);
    assert.deepEqual(messages.map((msg) => msg.seq), numbers(COUNT).map((n) => n + 1));
  }),

  "an ordered consumer reads the subjects it wants": onServer(async (nc) => {
    const { js, name } = await filled(nc, 10);
    const wanted = [`${name}.1`, `${name}.3`];
    const consumer = await js.consumers.get(name, { filter_subjects: wanted });
    const seen = (await take(await consumer.fetch({ max_messages: 4 }), 4)).map(text);
    assert.deepEqual(seen, ["1", "3", "6", "8"]);
  }),

  "a push consumer delivers": onServer(async (nc) => {
    const deliver_subject = `deliver.${process.pid}.${made++}`;
    const { js, jsm, name } = await filled(nc, COUNT);
    const policies = { ack_policy: AckPolicy.None, deliver_policy: DeliverPolicy.All };
    await jsm.consumers.add(name, { durable_name: "P", deliver_subject, ...policies });
    const consumer = await js.consumers.getPushConsumer(name, "P");
    const messages = await take(await consumer.consume(), COUNT);
    assert.deepEqual(messages.map((msg) => Number(text(msg))), numbers(COUNT));
  }),

  "a work queue forgets what is done": onServer(async (nc) => {
    const { jsm, name, consumer } = await consuming(nc, 5, {}, {
      retention: RetentionPolicy.Workqueue,
    });
    for (const msg of await take(await consumer.fetch({ max_messages: 5 }), 5)) await msg.ackAck();
    assert.equal((await jsm.streams.info(name)).state.messages, 0);
  }),

  "a consumer is paused and resumed": onServer(async (nc) => {
    const { jsm, name, durable } = await consuming(nc, 1);
    const until = new Date(Date.now() + 60_000);
    assert.equal((await jsm.consumers.pause(name, durable, until)).paused, true);
    assert.equal((await jsm.consumers.resume(name, durable)).paused, false);
  }),

  "headers and times come with messages": onServer(async (nc) => {
    const { js, name, consumer } = await consuming(nc, 0);
    const given = headers();
    given.set("Colour", "green");
    await js.publish(`${name}.x`, "", { headers: given });
    const msg = await consumer.next({ expires: WAIT_MS });
    assert.equal(msg.headers.get("Colour"), "green");
    assert.ok(Math.abs(new Date(msg.time).getTime() - Date.now()) < 60_000);
  }),

  "a mirror follows its origin": onServer(async (nc) => {
    const { jsm, name } = await filled(nc, 10);
    await jsm.streams.add({ name: `${name}_M`, mirror: { name } });
    const deadline = Date.now() + WAIT_MS;
    while ((await jsm.streams.info(`${name}_M`)).state.messages < 10) {
      assert.ok(Date.now() < deadline, "the mirror has not caught up");
    }
  }),

  "messages may expire by themselves": onServer(async (nc) => {
    const { js, jsm, name } = await filled(nc, 0, { allow_msg_ttl: true });
    await js.publish(`${name}.x`, "", { ttl: "1s" });
    const deadline = Date.now() + WAIT_MS;
    while ((await jsm.streams.info(name)).state.messages > 0) {
      assert.ok(Date.now() < deadline, "the message is still there");
    }
  }),

  "a bucket keeps the last value": onServer(async (nc) => {
    const kv = await bucket(nc, { history: 3 });
    for (const value of ["1", "2", "3", "4"]) await kv.put("key", value);
    const entry = await kv.get("key");
    assert.deepEqual([entry.string(), entry.revision, entry.operation], ["4", 4, "PUT"]);
    const values = [];
    for await (const one of await kv.history({ key: "key" })) values.push(one.string());
    assert.deepEqual(values, ["2", "3", "4"]);
  }),

  "a key is created once, and updated at its revision": onServer(async (nc) => {
    const kv = await bucket(nc);
    const revision = await kv.create("key", "1");
    await assert.rejects(kv.create("key", "2"), /wrong last sequence/);
    await assert.rejects(kv.update("key", "2", revision + 1), /wrong last sequence/);
    assert.equal(await kv.update("key", "2", revision), revision + 1);
  }),

  "deleted keys are gone, and may be created again": onServer(async (nc) => {
    const kv = await bucket(nc);
    await kv.put("a", "1");
    await kv.put("b", "2");
    await kv.delete("a");
    assert.equal((await kv.get("a")).operation, "DEL");
    const keys = [];
    for await (const key of await kv.keys()) keys.push(key);
    assert.deepEqual(keys, ["b"]);
    await kv.create("a", "3");
    await kv.purge("b");
    assert.equal((await kv.get("b")).operation, "PURGE");
  }),

  "a watch tells what is there and what changes": onServer(async (nc) => {
    const kv = await bucket(nc);
    await kv.put("a.1", "1");
    await kv.put("b.1", "2");
    const watch = await kv.watch({ key: "a.*" });
    await kv.put("a.2", "3");
    await kv.delete("a.1");
    const seen = (await take(watch, 3)).map((entry) => [entry.key, entry.operation]);
    assert.deepEqual(seen, [["a.1", "PUT"], ["a.2", "PUT"], ["a.1", "DEL"]]);
  }),

  "a bucket tells of itself, and is destroyed": onServer(async (nc) => {
    const kv = await bucket(nc, { history: 2, ttl: 60_000 });
    await kv.put("a", "1");
    const status = await kv.status();
    assert.deepEqual([status.values, status.history, status.ttl], [1, 2, 60_000]);
    assert.equal(nanos(status.ttl), 60_000_000_000);
    assert.ok(await kv.destroy());
  }),

  "an object of many pieces comes back whole": onServer(async (nc) => {
    const os = await store(nc);
    const data = new Uint8Array(300_000).map((_, n) => n % 251);
    const info = await os.putBlob({ name: "big", options: { max_chunk_size: 16_384 } }, data);
    assert.deepEqual([info.size, info.chunks], [data.length, 19]);
    assert.deepEqual(await os.getBlob("big"), data);
  }),

  "objects are listed, linked, changed and deleted": onServer(async (nc) => {
    const os = await store(nc);
    const info = await os.putBlob({ name: "a", description: "first" }, new Uint8Array([1, 2]));
    await os.link("b", info);
    await os.update("a", { name: "c" });
    assert.deepEqual((await os.list()).map((one) => one.name).sort(), ["b", "c"]);
    assert.equal((await os.delete("c")).success, true);
    assert.equal(await os.get("c"), null);
    assert.equal(await os.getBlob("nothing"), null);
  }),

  "an object store is sealed": onServer(async (nc) => {
    const os = await store(nc);
    await os.putBlob({ name: "a" }, new Uint8Array([1]));
    assert.equal((await os.seal()).sealed, true);
    await assert.rejects(os.putBlob({ name: "b" }, new Uint8Array([1])));
  }),
};

await run(tests);
