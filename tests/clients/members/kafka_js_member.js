// A group member by kafkajs: `kafka_js_member.js BOOTSTRAP GROUP TOPIC`. It says what python_member.py says.
'use strict'
const { Kafka, PartitionAssigners: { roundRobin }, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic] = process.argv.slice(2)
const say = event => process.stdout.write(JSON.stringify(event) + '\n')

// kafkajs has round robin under a name of its own; in a group with others it must have theirs.
const likeOthers = options => {
  const own = roundRobin(options)
  return { ...own, name: 'roundrobin', protocol: wanted => ({ ...own.protocol(wanted), name: 'roundrobin' }) }
}

const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 100 }
})
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: 3000,
  heartbeatInterval: 300,
  maxWaitTimeInMs: 50,
  partitionAssigners: [likeOthers]
})

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assigned: payload.memberAssignment[topic] || [] }))

async function main () {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      for (const message of batch.messages) {
        say({ read: [batch.partition, Number(message.offset), message.value.toString()] })
      }
      const next = String(Number(batch.lastOffset()) + 1)
      try {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }])
        say({ committed: { [batch.partition]: Number(next) } })
      } catch (error) {
        say({ refused: String(error) })
        throw error
      }
      await heartbeat()
    }
  })
}

process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})
main()
