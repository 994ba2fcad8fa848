// A facilitator as an operator builds it from the reference packages. It settles payments of
// the scheme exact on one EVM chain, pays for the transactions from one account, and speaks
// plain HTTP.
//
//   RPC=http://127.0.0.1:8545 NETWORK=eip155:8453 [PORT=0] [CONFIRM_MS=30000] node facilitator.mjs
//
// Each process makes a new account, and the test node gives the account Ether.
import http from 'node:http'
import { x402Facilitator } from '@x402/core/facilitator'
import { toFacilitatorEvmSigner } from '@x402/evm'
import { ExactEvmScheme } from '@x402/evm/exact/facilitator'
import { createWalletClient, defineChain, http as rpc, publicActions } from 'viem'
import { generatePrivateKey, nonceManager, privateKeyToAccount } from 'viem/accounts'

const { RPC, NETWORK, PORT = '0', CONFIRM_MS = '30000' } = process.env
const chain = defineChain({
  id: Number(NETWORK.split(':')[1]),
  name: 'test node',
  nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [RPC] } },
})
// Without the nonce manager, simultaneous settlements would use the same nonce of the account.
const account = privateKeyToAccount(generatePrivateKey(), { nonceManager })
const client = createWalletClient({ account, chain, transport: rpc(RPC), pollingInterval: 50, cacheTime: 0 }).extend(publicActions)
await client.request({ method: 'anvil_setBalance', params: [account.address, '0x3635c9adc5dea00000'] })

const signer = toFacilitatorEvmSigner(
  {
    address: account.address,
    getCode: (q) => client.getCode(q),
    readContract: (q) => client.readContract({ ...q, args: q.args ?? [] }),
    verifyTypedData: (q) => client.verifyTypedData(q),
    writeContract: (q) => client.writeContract({ ...q, args: q.args ?? [] }),
    sendTransaction: (q) => client.sendTransaction(q),
    waitForTransactionReceipt: (q) => client.waitForTransactionReceipt(q),
  },
  { confirmationTimeoutMs: Number(CONFIRM_MS) },
)
const facilitator = new x402Facilitator()
facilitator.register(NETWORK, new ExactEvmScheme(signer))

async function answer(request) {
  if (request.method === 'GET' && request.url === '/supported') return facilitator.getSupported()
  const name = request.url.slice(1)
  if (request.method !== 'POST' || (name !== 'verify' && name !== 'settle')) return undefined
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const { paymentPayload, paymentRequirements } = JSON.parse(Buffer.concat(chunks).toString())
  return facilitator[name](paymentPayload, paymentRequirements)
}

const plain = (_, v) => (typeof v === 'bigint' ? String(v) : v)
const server = http.createServer(async (request, response) => {
  let status = 200
  let body
  try {
    body = await answer(request)
    if (body === undefined) [status, body] = [404, { error: 'not found' }]
  } catch (e) {
    ;[status, body] = [500, { error: String(e?.message ?? e) }]
  }
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body, plain))
})
server.listen(Number(PORT), '127.0.0.1', () => console.log(`the facilitator is ready on http://127.0.0.1:${server.address().port}`))
