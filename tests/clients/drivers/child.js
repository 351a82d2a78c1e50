'use strict'
// How a driver in Node is asked: a line of JSON with a verb for each call, a line of JSON for each answer.
const readline = require('readline')

const plainly = error => ({ code: typeof error.code === 'number' ? error.code : null, message: String(error.message || error) })

// Answers until the input ends, then calls `finish` and ends the process. `shown` says what is told of an error.
exports.serve = async function serve (verbs, { shown = plainly, finish = async () => {} } = {}) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    let answer
    try {
      answer = { result: await verbs[command.verb](command) }
    } catch (error) {
      answer = { error: shown(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  await finish()
  process.exit(0)
}
