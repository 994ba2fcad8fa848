'use strict'
// Compiles the contracts beside it and prints their code as contracts.json
// holds it. Run it from the folder of the Node package, where solc is:
//   node ../contracts/compile.cjs > ../contracts/contracts.json
const fs = require('node:fs')
const path = require('node:path')
const { createRequire } = require('node:module')
const solc = createRequire(path.join(process.cwd(), 'package.json'))('solc')

const names = ['Batch', 'Token']
const input = {
  language: 'Solidity',
  sources: Object.fromEntries(names.map((n) => [n + '.sol', { content: fs.readFileSync(path.join(__dirname, n + '.sol'), 'utf8') }])),
  settings: {
    evmVersion: 'paris',
    viaIR: true,
    optimizer: { enabled: true, runs: 200 },
    metadata: { bytecodeHash: 'none', appendCBOR: false }, // the code depends on the sources only
    outputSelection: { '*': { '*': ['evm.deployedBytecode.object'] } },
  },
}
const output = JSON.parse(solc.compile(JSON.stringify(input)))
const errors = (output.errors || []).filter((e) => e.severity === 'error')
if (errors.length > 0) {
  console.error(errors.map((e) => e.formattedMessage).join('\n'))
  process.exit(1)
}
const code = Object.fromEntries(names.map((n) => [n, '0x' + output.contracts[n + '.sol'][n].evm.deployedBytecode.object]))
console.log(JSON.stringify({ solc: solc.version(), code }, null, 2))
