// A seller of the ping, as a user would build it without the service: Express behind the
// middleware of the x402 project, which keeps no ledger.
//
//   FACILITATOR=http://127.0.0.1:8403 node server.mjs
import express from 'express'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/express'

const { FACILITATOR, NETWORK, PAY_TO } = process.env
const facilitator = new HTTPFacilitatorClient({ url: FACILITATOR })
const resources = new x402ResourceServer(facilitator).register(NETWORK, new ExactEvmScheme())
const app = express()
app.use(
  paymentMiddleware(
    {
      'GET /v1/tools/ping': {
        accepts: { scheme: 'exact', price: '$0.001', network: NETWORK, payTo: PAY_TO },
        description: 'Payment smoke test',
      },
    },
    resources,
  ),
)
app.get('/v1/tools/ping', (_, response) => response.json({ ok: true, service: 'express' }))
const server = app.listen(0, '127.0.0.1', () => console.log(`ready on http://127.0.0.1:${server.address().port}`))
