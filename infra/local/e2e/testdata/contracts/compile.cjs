'use strict'
// Compiles Wallet.sol and prints its creation code as wallet.json holds it. Run
// it from the folder of the Node package that has solc, which is
// infra/testbed/testdata/chain:
//   node <this folder>/compile.cjs > <this folder>/wallet.json
const fs = require('node:fs')
const path = require('node:path')
const { createRequire } = require('node:module')
const solc = createRequire(path.join(process.cwd(), 'package.json'))('solc')

const input = {
  language: 'Solidity',
  sources: { 'Wallet.sol': { content: fs.readFileSync(path.join(__dirname, 'Wallet.sol'), 'utf8') } },
  settings: {
    evmVersion: 'paris',
    optimizer: { enabled: true, runs: 200 },
    metadata: { bytecodeHash: 'none', appendCBOR: false }, // the code depends on the source only
    outputSelection: { '*': { '*': ['evm.bytecode.object'] } },
  },
}
const output = JSON.parse(solc.compile(JSON.stringify(input)))
const errors = (output.errors || []).filter((e) => e.severity === 'error')
if (errors.length > 0) {
  console.error(errors.map((e) => e.formattedMessage).join('\n'))
  process.exit(1)
}
console.log(JSON.stringify({ solc: solc.version(), creation: '0x' + output.contracts['Wallet.sol'].Wallet.evm.bytecode.object }, null, 2))
