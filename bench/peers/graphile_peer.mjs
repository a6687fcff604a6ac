// Graphile Worker: the commands of adapter.py. A local queue of 5,000 was the fastest of several.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const URL_ = process.env.BENCH_URL
const FOLDER = process.env.BENCH_FOLDER ?? '.'
const modules = process.env.BENCH_NODE_MODULES
const require = createRequire(path.join(modules, 'index.js'))
const load = (name) => import(pathToFileURL(require.resolve(name)))
const SETTINGS = { concurrentJobs: 24, localQueue: 5000, completeJobBatchDelay: 0, pool: 10, bulk: 1000 }
const WARM = 20
const KEPT = 1000

const now = () => (performance.timeOrigin + performance.now()) / 1000
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const emit = (values) => console.log(JSON.stringify(values))
const payload = (number, warm = false) => ({ t: now(), i: number, warm, pad: 'x'.repeat(150) })

const graphile = await load('graphile-worker')
const logger = new graphile.Logger(() => () => {})
const preset = {
  worker: {
    connectionString: URL_,
    concurrentJobs: SETTINGS.concurrentJobs,
    maxPoolSize: SETTINGS.pool,
    pollInterval: 2000,
    localQueue: { size: SETTINGS.localQueue },
    completeJobBatchDelay: SETTINGS.completeJobBatchDelay,
    failJobBatchDelay: 0
  }
}

// The meter of adapter.py, written to its file every 5 ms.
const meter = Buffer.alloc(64 + 8 * KEPT)
let file = null
let handled = 0
let isDirty = false
function flush () {
  if (!isDirty) return
  isDirty = false
  fs.writeSync(file, meter, 0, meter.length, 0)
}
function hit (given) {
  const at = now()
  if (given.warm) return
  if (file === null) {
    file = fs.openSync(`${FOLDER}/${process.pid}.meter`, 'w+')
    setInterval(flush, 5)
  }
  if (handled === 0) meter.writeDoubleLE(at, 0)
  if (handled < KEPT) meter.writeDoubleLE(at - given.t, 64 + 8 * handled)
  handled++
  meter.writeDoubleLE(at, 8)
  meter.writeBigUInt64LE(BigInt(handled), 16)
  isDirty = true
  if (handled === 1) flush()
}

async function waitFor (name) {
  while (!fs.existsSync(`${FOLDER}/${name}`)) await sleep(1)
}

async function withUtils (act) {
  const utils = await graphile.makeWorkerUtils({ preset, logger })
  try {
    const began = performance.now()
    await act(utils)
    return (performance.now() - began) / 1000
  } finally {
    await utils.release()
  }
}

const commands = {
  describe () {
    const text = fs.readFileSync(path.join(modules, 'graphile-worker', 'package.json'))
    emit({ version: JSON.parse(text).version, settings: SETTINGS })
  },
  async prepare () {
    await graphile.runMigrations({ preset, logger })
    process.exit(0)
  },
  async 'enqueue-one' (count) {
    const seconds = await withUtils(async (utils) => {
      for (let i = 0; i < count; i++) await utils.addJob('noop', payload(i))
    })
    emit({ seconds })
  },
  async 'enqueue-bulk' (count) {
    const seconds = await withUtils(async (utils) => {
      for (let start = 0; start < count; start += SETTINGS.bulk) {
        const length = Math.min(SETTINGS.bulk, count - start)
        await utils.addJobs(Array.from({ length }, (_, i) => ({ identifier: 'noop', payload: payload(start + i) })))
      }
    })
    emit({ seconds })
  },
  async work () {
    fs.writeFileSync(`${FOLDER}/ready.${process.pid}`, '')
    await waitFor('go')
    await graphile.run({ preset, logger, taskList: { noop: async (given) => hit(given) }, noHandleSignals: true, parsedCronItems: [] })
  },
  async watch () {
    const { default: pg } = await load('pg')
    const client = new pg.Client({ connectionString: URL_ })
    await client.connect()
    fs.writeFileSync(`${FOLDER}/watching`, '')
    await waitFor('handled')
    const unfinished = 'SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS found'
    while ((await client.query(unfinished)).rows[0].found) await sleep(2)
    emit({ empty_at: now() })
    await client.end()
  },
  async trickle (count, pauseMs) {
    await withUtils(async (utils) => {
      for (let i = 0; i < WARM; i++) await utils.addJob('noop', payload(i, true))
      await sleep(1000)
      for (let i = 0; i < count; i++) {
        await utils.addJob('noop', payload(i))
        await sleep(pauseMs)
      }
    })
  }
}

const [command, ...given] = process.argv.slice(2)
await commands[command](...given.map(Number))
