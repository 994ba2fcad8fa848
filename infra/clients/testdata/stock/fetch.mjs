// @x402/fetch as its README shows it, a client for every call.
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { ExactEvmScheme } from '@x402/evm'
import { privateKeyToAccount } from 'viem/accounts'
import { loops, posted } from './loop.mjs'

// A signal that is given to the wrapped fetch passes through clones of its request, which
// Node 20 collects before they pass it on: then nothing ends the call. So each request
// gets a signal of its own.
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
