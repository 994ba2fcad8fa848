// @x402/fetch, used as its README shows, with a new client for every call.
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { ExactEvmScheme } from '@x402/evm'
import { privateKeyToAccount } from 'viem/accounts'
import { loops, posted } from './loop.mjs'

// Each request gets a new signal, set on the inner fetch. A signal that is given to the
// wrapped fetch is handed on through clones of the request. Node 20 collects these clones too
// early, and then nothing ends the call.
await loops(async ({ url, network, key, headers, timeout, report }) => {
  const account = privateKeyToAccount(key)
  const patient = (input, init) => fetch(input, { ...init, signal: timeout ? AbortSignal.timeout(timeout * 1000) : undefined })
  const fetchWithPayment = wrapFetchWithPaymentFromConfig(patient, { schemes: [{ network, client: new ExactEvmScheme(account) }] })
  const response = await fetchWithPayment(url, { headers, ...(report && asPost(report, headers)) })
  return { status: response.status, body: await response.text() }
})

function asPost(report, headers) {
  const body = posted(report)
  if (report.kind !== 'json') return { method: 'POST', body }
  return { method: 'POST', body: JSON.stringify(body), headers: { ...headers, 'Content-Type': 'application/json' } }
}
