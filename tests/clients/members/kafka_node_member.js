// A group member by kafka-node: `kafka_node_member.js BOOTSTRAP GROUP TOPIC`. It says what python_member.py says.
'use strict'
const { ConsumerGroup } = require('kafka-node')

const [kafkaHost, groupId, topic] = process.argv.slice(2)
const say = event => process.stdout.write(JSON.stringify(event) + '\n')

const consumer = new ConsumerGroup({
  kafkaHost,
  groupId,
  fromOffset: 'earliest',
  protocol: ['roundrobin'],
  sessionTimeout: 3000,
  heartbeatInterval: 300,
  autoCommit: false,
  fetchMaxWaitMs: 50,
  connectRetryOptions: { retries: 100, minTimeout: 50, maxTimeout: 500 },
  retryMinTimeout: 50
}, [topic])

// Positions are committed one after the other, and each once everything below it was said.
const positions = {}
let committing = false

function commit () {
  if (committing || Object.keys(positions).length === 0) return
  committing = true
  const places = { ...positions }
  for (const partition of Object.keys(places)) delete positions[partition]
  const payloads = Object.entries(places).map(
    ([partition, offset]) => ({ topic, partition: Number(partition), offset, metadata: '' }))
  consumer.sendOffsetCommitRequest(payloads, error => {
    say(error ? { refused: String(error) } : { committed: places })
    committing = false
    commit()
  })
}

consumer.on('message', message => {
  say({ read: [message.partition, message.offset, message.value] })
  positions[message.partition] = message.offset + 1
  commit()
})
consumer.on('rebalanced', () => say({ assigned: consumer.topicPayloads.map(one => one.partition) }))
consumer.on('error', error => say({ refused: String(error) }))

process.on('SIGTERM', () => consumer.close(false, () => process.exit(0)))
