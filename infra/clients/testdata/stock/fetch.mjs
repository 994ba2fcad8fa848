// @x402/fetch as its README shows it, a client for every call.
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { ExactEvmScheme } from '@x402/evm'
import { privateKeyToAccount } from 'viem/accounts'
import { loops } from './loop.mjs'

await loops(async ({ url, network, key, headers, timeout }) => {
  const account = privateKeyToAccount(key)
  const fetchWithPayment = wrapFetchWithPaymentFromConfig(fetch, { schemes: [{ network, client: new ExactEvmScheme(account) }] })
  const response = await fetchWithPayment(url, { headers, signal: timeout ? AbortSignal.timeout(timeout * 1000) : undefined })
  return { status: response.status, body: await response.text() }
})
