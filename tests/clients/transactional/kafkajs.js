// The transactions of kafkajs, driven by a pipe: see transactional.py and ../drivers/child.js.
'use strict'
const { serve } = require('../drivers/child.js')
const { Kafka, logLevel } = require('kafkajs')

const kafka = new Kafka({
  brokers: [process.argv[2]],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { retries: 8, initialRetryTime: 50 }
})

// Producers by name, and their transactions. A producer asks for its id when its first transaction begins.
const producers = {}
const transactions = {}

const verbs = {
  async open ({ producer, transactional_id: transactionalId, timeout_ms: transactionTimeout }) {
    const made = kafka.producer({ transactionalId, transactionTimeout, idempotent: true, maxInFlightRequests: 1 })
    await made.connect()
    producers[producer] = made
    transactions[producer] = await made.transaction()
    return null
  },

  async begin ({ producer }) {
    if (!transactions[producer]) transactions[producer] = await producers[producer].transaction()
    return null
  },

  async send ({ producer, topic, values }) {
    await transactions[producer].send({ topic, messages: values.map(value => ({ value, partition: 0 })) })
    return null
  },

  async send_offset ({ producer, group, topic, offset }) {
    const topics = [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }]
    await transactions[producer].sendOffsets({ consumerGroupId: group, topics })
    return null
  },

  async commit ({ producer }) {
    await transactions[producer].commit()
    delete transactions[producer]
    return null
  },

  async abort ({ producer }) {
    await transactions[producer].abort()
    delete transactions[producer]
    return null
  },

  async values ({ topic, committed, last }) {
    const consumer = kafka.consumer({
      groupId: `${topic}-${committed}`, readUncommitted: !committed, maxWaitTimeInMs: 100
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const found = []
    await new Promise((resolve, reject) => {
      consumer.on('consumer.crash', event => reject(event.payload.error))
      consumer.run({
        eachMessage: async ({ message }) => {
          const value = message.value.toString()
          if (value === last) resolve()
          else found.push(value)
        }
      }).catch(reject)
    })
    await consumer.disconnect()
    return found
  }
}

// Kafka's error number lies in the error, or in the one that caused it.
const codeOf = error => !error ? null : typeof error.code === 'number' ? error.code : codeOf(error.cause)

serve(verbs, { shown: error => ({ code: codeOf(error), message: String(error.message) }) })
