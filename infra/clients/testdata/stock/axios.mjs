// @x402/axios, used as its README shows, with a new client for every call. The answer is kept
// as text, so that it can be compared.
import axios from 'axios'
import { wrapAxiosWithPaymentFromConfig } from '@x402/axios'
import { ExactEvmScheme } from '@x402/evm'
import { privateKeyToAccount } from 'viem/accounts'
import { loops, posted } from './loop.mjs'

await loops(async ({ url, network, key, headers, timeout, report }) => {
  const account = privateKeyToAccount(key)
  const api = wrapAxiosWithPaymentFromConfig(axios.create(), { schemes: [{ network, client: new ExactEvmScheme(account) }] })
  try {
    const options = { headers, responseType: 'text', timeout: timeout * 1000 }
    const response = await (report ? api.post(url, posted(report), options) : api.get(url, options))
    return { status: response.status, body: response.data }
  } catch (error) {
    if (!error.response || error.response.status === 200) throw error // lost, or cut off
    return { status: error.response.status, body: error.response.data }
  }
})
