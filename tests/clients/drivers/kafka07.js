// The npm clients of Kafka 0.7, driven by a pipe: one JSON command a line in, one JSON line out, in order. See child.py.
// Arguments: the client's name (kafka or prozess), host, port. Offsets are byte addresses.
'use strict'
const { serve } = require('./child.js')
const [name, host, port] = [process.argv[2], process.argv[3], Number(process.argv[4])]
const READ_MS = 25000

const bytes = text => Buffer.from(text || '', 'base64')
const promised = call => new Promise((resolve, reject) => call((error, result) => error ? reject(error) : resolve(result)))
const inTime = (work, what) => Promise.race([
  work, new Promise((resolve, reject) => setTimeout(() => reject(new Error(`${what} took too long`)), READ_MS).unref())
])

// npm `kafka` 0.2.3: text only, magic 0.
const kafka = {
  async write ({ topic, partition, messages }) {
    const { Producer } = require('kafka')
    const producer = new Producer({ host, port })
    await promised(done => { producer.on('error', done); producer.connect(() => done()) })
    producer.send(messages.map(m => bytes(m.value).toString()), topic, partition)
    await promised(done => producer._connection.end(done))
    return null
  },

  async read ({ topic, partition, offset, count }) {
    const { Consumer } = require('kafka')
    const found = []
    const consumer = new Consumer({ host, port, pollInterval: 20 })
    try {
      await inTime(new Promise((resolve, reject) => {
        consumer.on('error', (code, text) => reject(Object.assign(new Error(String(text)), { code })))
        consumer.on('message', (_, text, next) => {
          if (found.length < count) found.push({ value: Buffer.from(text).toString('base64'), next })
          if (found.length === count) resolve()
        })
        consumer.subscribeTopic({ name: topic, partition, offset }).connect()
      }), 'a read')
    } finally {
      consumer.close()
    }
    return found
  }
}

// prozess 0.7.0: magic 1; it writes what it has read again to know how long it was.
const prozess = {
  async write ({ topic, partition, messages }) {
    const { Producer } = require('prozess')
    const producer = new Producer(topic, { host, port, partition })
    await promised(done => { producer.on('error', done); producer.on('connect', () => done()); producer.connect() })
    await promised(done => producer.send(messages.map(m => bytes(m.value)), done))
    await promised(done => producer.connection._connection.end(done))
    return null
  },

  async consumer (options) {
    const { Consumer } = require('prozess')
    const consumer = new Consumer({ host, port, ...options })
    await promised(done => consumer.connect(done))
    return consumer
  },

  async read ({ topic, partition, offset, count, size }) {
    const consumer = await this.consumer({ topic, partition, offset, maxMessageSize: size })
    const found = []
    try {
      await inTime((async () => {
        while (found.length < count) {
          const messages = await promised(done => consumer.consume(done))
          for (const message of messages) {
            if (!message.isValid()) throw new Error('a wrong checksum')
            found.push({ value: message.payload.toString('base64'), magic: message.magic })
          }
          if (messages.length) found[found.length - 1].next = Number(consumer.offset.toString())
          else await new Promise(resolve => setTimeout(resolve, 20))
        }
      })(), 'a read')
    } finally {
      consumer.socket.destroy()
    }
    return found.slice(0, count)
  },

  async bounds ({ topic, partition }) {
    const consumer = await this.consumer({ topic, partition })
    const first = await promised(done => consumer.getEarliestOffset(done))
    const next = await promised(done => consumer.getLatestOffset(done))
    consumer.socket.destroy()
    return [Number(first.toString()), Number(next.toString())]
  }
}

serve({ kafka, prozess }[name])
