'use strict'
// kafkajs that logs in: `sasl_kafka_js.js BOOTSTRAP MECHANISM USER PASSWORD TOPIC`. Writes a record and reads it.
// With SSL_CAFILE in the environment it does so over TLS.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, mechanism, username, password, topic] = process.argv.slice(2)
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { retries: 0 },
  ssl: process.env.SSL_CAFILE ? { ca: [fs.readFileSync(process.env.SSL_CAFILE)] } : undefined,
  sasl: { mechanism: mechanism.toLowerCase(), username, password }
})

async function main () {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'from ' + mechanism }] })
  await producer.disconnect()
  const admin = kafka.admin()
  await admin.connect()
  const [{ high }] = await admin.fetchTopicOffsets(topic)
  await admin.disconnect()
  process.stdout.write(high + '\n')
}

main().catch(error => {
  process.stderr.write(error.message + '\n')
  process.exit(1)
})
