// Pays for one URL with the reference client as it comes, default spend
// controls and all, and then asks again by plain fetch with the signature that
// it sent. Prints one JSON object: {answer, replay, requests}.
import { x402Client, wrapFetchWithPayment } from '@x402/fetch'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'

const [url, network] = process.argv.slice(2)
const account = privateKeyToAccount(generatePrivateKey())
const client = new x402Client().register(network, new ExactEvmScheme(account))

// The client's own fetch, which only notes what it is told to send.
const sent = []
const noting = async (input, init) => {
  const request = new Request(input, init)
  sent.push(Object.fromEntries(request.headers))
  return fetch(request)
}

const read = async (response) => ({
  status: response.status,
  headers: Object.fromEntries(response.headers),
  body: await response.text(),
})

const headers = { accept: 'application/json' }
const answer = await read(await wrapFetchWithPayment(noting, client)(url, { headers }))
const signature = sent.at(-1)['payment-signature']
const replay = await read(await fetch(url, { headers: { ...headers, 'payment-signature': signature } }))
console.log(JSON.stringify({ payer: account.address, answer, replay, requests: sent }))
