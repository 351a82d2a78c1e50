// kafka-node, driven by a pipe: one JSON command a line in, one JSON line out, in order. See child.py.
'use strict'
const { serve } = require('./child.js')
const snappy = require('snappyjs')

// kafka-node takes snappy from a package that must be compiled; another one stands in for it.
const path = require.resolve('snappy')
const later = (work, done) => {
  let result
  try { result = work() } catch (error) { return done(error) }
  done(null, Buffer.from(result))
}
require.cache[path] = {
  id: path,
  filename: path,
  loaded: true,
  exports: {
    compress: (data, done) => later(() => snappy.compress(data), done),
    uncompress: (data, done) => later(() => snappy.uncompress(data), done)
  }
}
const { Consumer, KafkaClient, Offset, Producer } = require('kafka-node')

const CODECS = { none: 0, gzip: 1, snappy: 2 }
const READ_MS = 25000
const options = () => ({ kafkaHost: process.argv[2], connectRetryOptions: { retries: 50, minTimeout: 50, maxTimeout: 500 } })

const open = {}
const ready = (name, make) => open[name] || (open[name] = new Promise((resolve, reject) => {
  const made = make()
  made.once('ready', () => resolve(made))
  // It reports a lost connection by an error that ends a process without a handler, and connects again.
  made.on('error', reject)
}))
// 2: by key; it hashes in a way of its own.
const producer = () => ready('producer', () => new Producer(new KafkaClient(options()), { requireAcks: -1, ackTimeoutMs: 30000 }))
const client = () => ready('client', () => new KafkaClient(options()))
const promised = call => new Promise((resolve, reject) => call((error, result) => error ? reject(error) : resolve(result)))

const bytes = text => text === null ? null : Buffer.from(text, 'base64')
const text = data => data === null || data === undefined ? null : Buffer.from(data).toString('base64')

const verbs = {
  // One payload for all: a payload's messages share key and time, so each message is made one by one.
  async write ({ topic, partition, messages, codec }) {
    const sender = await producer()
    await promised(done => sender.client.refreshMetadata([topic], done))
    await promised(done => sender.send(messages.map(m => ({
      topic, partition, attributes: CODECS[codec], key: bytes(m.key), messages: [bytes(m.value)], timestamp: m.timestamp || undefined
    })), done))
    return null
  },

  async read ({ topic, partition, offset, count }) {
    const reader = new KafkaClient(options())
    await new Promise((resolve, reject) => { reader.once('ready', resolve); reader.once('error', reject) })
    const consumer = new Consumer(reader, [{ topic, partition, offset }], {
      fromOffset: true, autoCommit: false, encoding: 'buffer', keyEncoding: 'buffer', fetchMaxWaitMs: 100
    })
    const found = []
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, READ_MS)
      const end = (how, what) => { clearTimeout(timer); how(what) }
      consumer.on('error', error => end(reject, error))
      consumer.on('offsetOutOfRange', () => end(reject, Object.assign(new Error('offset out of range'), { code: 1 })))
      consumer.on('message', m => {
        if (found.length < count && m.offset >= offset) found.push(m)
        if (found.length === count) end(resolve)
      })
    })
    await promised(done => consumer.close(false, done))
    return found.map(m => ({
      key: text(m.key),
      value: text(m.value),
      headers: [],
      timestamp: m.timestamp ? m.timestamp.getTime() : -1,
      offset: m.offset
    }))
  },

  async bounds ({ topic, partition }) {
    const offsets = new Offset(await client())
    const one = async time => (await promised(done => offsets.fetch([{ topic, partition, time, maxNum: 1 }], done)))[topic][partition][0]
    return [await one(-2), await one(-1)]
  },

  async topics () {
    const metadata = await promised(done => client().then(c => c.loadMetadataForTopics([], done), done))
    return Object.fromEntries(Object.entries(metadata[1].metadata).map(([name, parts]) => [name, Object.keys(parts).length]))
  }
}

serve(verbs)
