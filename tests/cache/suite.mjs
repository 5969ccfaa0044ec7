// Runs the public test suite for HTTP caches against a cache, and compares the failures with a baseline.
//
// usage: node suite.mjs SUITE BASE BASELINE [ID...]
//   SUITE     folder of the package `http-cache-tests`
//   BASE      URL of the cache, whose origin is the server of the suite
//   BASELINE  file of expected failures: `ID SUITE REASON` on each line; `-` compares nothing
//   ID        tests to run, with their requests and responses; by default all tests for shared caches

import fs from 'fs'
import path from 'path'
import { createRequire } from 'module'

const [suite, base, baseline, ...ids] = process.argv.slice(2)
const load = file => import(path.resolve(suite, file))

// The released package and the repository have the same version, and other folders.
const isReleased = fs.existsSync(path.resolve(suite, 'cli.mjs'))
const engine = isReleased ? '.' : 'test-engine'
const { default: groups } = await load('tests/index.mjs')
const { runTests, getResults } = await load(`${engine}/client/runner.mjs`)
const { determineTestResult } = await load(`${engine}/lib/${isReleased ? 'display' : 'results'}.mjs`)
const run = [groups, false, base]
if (isReleased) {
  const { default: surrogate } = await load('tests/surrogate-control.mjs')
  groups.push(surrogate)
  run.splice(1, 0, createRequire(path.resolve(suite, 'package.json'))('node-fetch'))
}

const tests = groups.flatMap(group => group.tests).filter(test => test.browser_only !== true)
const kind = test => test.kind || 'required'

if (ids.length > 0) {
  for (const group of groups) {
    group.tests = group.tests.filter(test => ids.includes(test.id))
    for (const test of group.tests) test.dump = true
  }
  await runTests(...run)
  console.log(JSON.stringify(getResults(), null, 2))
  process.exit(0)
}

await runTests(...run)
const results = getResults()

// The words for the symbols of the suite's report. A test whose dependency has failed counts as failed.
const words = {
  '✅': 'pass', Y: 'pass', '⛔️': 'fail', '⚠️': 'fail', N: 'no', '🔹': 'setup', '⁉️': 'harness',
  '⚪️': 'dependency', '↻': 'retry', '-': 'untested'
}
const outcome = test => words[determineTestResult(groups, test.id, results)[2]]

const failed = new Map()
for (const each of ['required', 'optimal', 'check']) {
  const recorded = tests.filter(test => kind(test) === each)
  const passed = recorded.filter(test => outcome(test) === 'pass')
  const alone = recorded.filter(test => results[test.id] === true)
  console.log(`${each}: ${passed.length}/${recorded.length}, without regard to dependencies ${alone.length}`)
  if (each === 'check') continue
  for (const test of recorded) {
    if (outcome(test) !== 'pass') failed.set(test.id, `${each} ${outcome(test)}: ${String((results[test.id] || [])[1] || '').slice(0, 100)}`)
  }
}
for (const [id, reason] of failed) console.log(`  ${id}  ${reason}`)
if (process.env.CACHE_TESTS_CHECKS) {
  for (const test of tests.filter(test => kind(test) === 'check')) console.log(`  check ${outcome(test)}  ${test.id}`)
}

if (baseline === '-') process.exit(0)
const name = isReleased ? 'package' : 'repository'
const expected = new Set()
for (const line of fs.readFileSync(baseline, 'utf8').split('\n')) {
  const [id, suite] = line.split(' ')
  if (line !== '' && !line.startsWith('#') && ['both', name].includes(suite)) expected.add(id)
}
const unexpected = [...failed.keys()].filter(id => !expected.has(id))
const passing = [...expected].filter(id => !failed.has(id))
for (const id of unexpected) console.log(`not in ${baseline}: ${id}`)
for (const id of passing) console.log(`passes, but is in ${baseline}: ${id}`)
process.exit(unexpected.length + passing.length > 0 ? 1 : 0)
