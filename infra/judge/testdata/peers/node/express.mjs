// This program sells the weather, in the way that the README of @x402/express shows.
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/express'
import express from 'express'

// FLOW is empty or "upfront". With "upfront", the payment is settled before the handler runs.
const { FACILITATOR, UPSTREAM, PRICE, PAY_TO, PORT, FLOW } = process.env
const network = 'eip155:8453'
const accepts = { scheme: 'exact', price: `$${PRICE}`, network, payTo: PAY_TO, ...(FLOW && { extra: { paymentFlow: FLOW } }) }
const facilitator = new HTTPFacilitatorClient({ url: FACILITATOR })
const resources = new x402ResourceServer(facilitator).register(network, new ExactEvmScheme())
const app = express()
app.use(express.json())
app.use(
  paymentMiddleware(
    {
      'GET /weather': { accepts, description: 'The weather of a city' },
      'POST /report': { accepts, description: 'Takes a report of the weather' },
    },
    resources,
  ),
)

async function weather() {
  const station = await fetch(UPSTREAM)
  if (!station.ok) throw new Error('the station does not answer')
  return station.text()
}

app.get('/weather', async (request, response) => response.json({ city: request.query.city, weather: await weather() }))
app.post('/report', async (request, response) => response.json({ city: request.body.city, weather: await weather() }))
app.listen(Number(PORT), '127.0.0.1')
