// kafkajs, driven by a pipe: one JSON command a line in, one JSON line out, in order. See kafka_js.py.
'use strict'
const { serve } = require('./child.js')
const zlib = require('node:zlib')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const { Kafka, Partitioners, CompressionTypes, CompressionCodecs, ConfigResourceTypes, AssignerProtocol, logLevel } = require('kafkajs')

// kafkajs brings gzip; the other codecs are its users' to plug in.
const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])

function unsnappy (data) {
  if (!data.subarray(0, 8).equals(XERIAL)) return snappy.uncompress(data)
  const chunks = []
  for (let at = 16; at < data.length;) {
    const size = data.readInt32BE(at)
    chunks.push(snappy.uncompress(data.subarray(at + 4, at + 4 + size)))
    at += 4 + size
  }
  return Buffer.concat(chunks)
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => snappy.compress(encoder.buffer),
  decompress: async data => unsnappy(data)
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async data => lz4.decompressFrame(data)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async data => zlib.zstdDecompressSync(data)
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

const kafka = new Kafka({
  brokers: [process.argv[2]],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 50 }
})

const open = {}
async function connected (name, make) {
  if (!open[name]) {
    open[name] = make()
    await open[name].connect()
  }
  return open[name]
}
const producer = () => connected('producer', () =>
  kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner }))
const admin = () => connected('admin', () => kafka.admin())
// The public consumer always joins a group. Reading by partition and offset uses the cluster underneath it.
const cluster = () => connected('cluster', () => {
  const create = Object.getOwnPropertySymbols(kafka).find(s => s.description === 'private:Kafka:createCluster')
  return kafka[create]({ metadataMaxAge: 300000, allowAutoTopicCreation: false, isolationLevel: 0 })
})

const bytes = text => text === null ? null : Buffer.from(text, 'base64')
const text = data => data === null || data === undefined ? null : Buffer.from(data).toString('base64')

function toHeaders (pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    const data = bytes(value)
    if (!(name in headers)) headers[name] = data
    else headers[name] = [].concat(headers[name], [data])
  }
  return headers
}

const fromHeaders = headers => Object.entries(headers || {}).flatMap(
  ([name, value]) => (Array.isArray(value) ? value : [value]).map(one => [name, text(one)]))

const verbs = {
  async write ({ topic, partition, messages, codec }) {
    await (await producer()).send({
      topic,
      acks: -1,
      compression: CODECS[codec],
      messages: messages.map(m => ({
        key: bytes(m.key),
        value: bytes(m.value),
        headers: toHeaders(m.headers),
        partition,
        ...(m.timestamp === null ? {} : { timestamp: String(m.timestamp) })
      }))
    })
    return null
  },

  async choose ({ topic, key }) {
    const sent = await (await producer()).send({ topic, messages: [{ key: bytes(key), value: '' }] })
    return sent[0].partition
  },

  async read ({ topic, partition, offset, count }) {
    const reader = await cluster()
    await reader.addTargetTopic(topic)
    const [leader] = Object.keys(reader.findLeaderForPartitions(topic, [partition]))
    const broker = await reader.findBroker({ nodeId: leader })
    const found = []
    for (let next = offset; found.length < count;) {
      const answer = await broker.fetch({
        replicaId: -1,
        isolationLevel: 0,
        maxWaitTime: 1000,
        minBytes: 1,
        maxBytes: 10485760,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(next), maxBytes: 1048576 }] }]
      })
      const messages = answer.responses[0].partitions[0].messages.filter(m => Number(m.offset) >= next)
      if (messages.length === 0) break
      next = Number(messages[messages.length - 1].offset) + 1
      found.push(...messages)
    }
    return found.slice(0, count).map(m => ({
      key: text(m.key),
      value: text(m.value),
      headers: fromHeaders(m.headers),
      timestamp: m.timestamp,
      offset: m.offset
    }))
  },

  async offset_for_time ({ topic, partition, timestamp }) {
    const found = await (await admin()).fetchTopicOffsetsByTimestamp(topic, timestamp)
    const bounds = await (await admin()).fetchTopicOffsets(topic)
    const offset = found.find(p => p.partition === partition).offset
    // kafkajs answers the end where nothing is young enough.
    return offset === bounds.find(p => p.partition === partition).offset ? -1 : offset
  },

  async bounds ({ topic, partition }) {
    const found = (await (await admin()).fetchTopicOffsets(topic)).find(p => p.partition === partition)
    return [found.low, found.high]
  },

  async create_topic ({ topic, partitions, configs }) {
    const created = await (await admin()).createTopics({
      topics: [{
        topic,
        numPartitions: partitions,
        replicationFactor: 1,
        configEntries: Object.entries(configs).map(([name, value]) => ({ name, value }))
      }]
    })
    // kafkajs swallows this one error and answers false.
    if (!created) throw Object.assign(new Error('TOPIC_ALREADY_EXISTS'), { code: 36 })
    return null
  },

  async topics () {
    const { topics } = await (await admin()).fetchTopicMetadata()
    return Object.fromEntries(topics.map(t => [t.name, t.partitions.length]))
  },

  async add_partitions ({ topic, total }) {
    await (await admin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
    return null
  },

  async configs ({ topic }) {
    const { resources } = await (await admin()).describeConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    })
    return Object.fromEntries(resources[0].configEntries.map(e => [e.configName, e.configValue]))
  },

  async set_config ({ topic, key, value }) {
    await (await admin()).alterConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: key, value }] }]
    })
    return null
  },

  async delete_records ({ topic, partition, before }) {
    // It looks for the leader in what it knows, and does not know a topic that it has not asked for.
    await (await admin()).fetchTopicOffsets(topic)
    await (await admin()).deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return null
  },

  async delete_topic ({ topic }) {
    await (await admin()).deleteTopics({ topics: [topic] })
    return null
  },

  async groups () {
    return (await (await admin()).listGroups()).groups.map(g => g.groupId)
  },

  async describe_group ({ group, topic }) {
    const found = (await (await admin()).describeGroups([group])).groups[0]
    // While the group rebalances there is no assignment.
    const owned = m => AssignerProtocol.MemberAssignment.decode(m.memberAssignment)?.assignment[topic] || []
    return { state: found.state, members: Object.fromEntries(found.members.map(m => [m.memberId, owned(m)])) }
  },

  async group_offsets ({ group, topic }) {
    const found = (await (await admin()).fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions
    return Object.fromEntries(found.filter(p => Number(p.offset) >= 0).map(p => [p.partition, p.offset]))
  },

  async delete_group ({ group }) {
    await (await admin()).deleteGroups([group])
    return null
  }
}

// Kafka's error number lies somewhere inside: in the error, in one of several, in its cause.
function codeOf (error) {
  if (!error) return null
  if (typeof error.code === 'number') return error.code
  const inner = [...(error.errors || []), ...(error.partitions || []).map(p => p.error),
    ...(error.groups || []).map(g => ({ code: g.errorCode })), error.cause]
  return inner.map(codeOf).find(code => code !== null) ?? null
}

const shown = error => ({ code: codeOf(error), message: String(error.message) })

async function finish () {
  for (const client of Object.values(open)) await client.disconnect()
}

serve(verbs, { shown, finish })
