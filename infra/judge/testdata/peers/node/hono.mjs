// This program sells the weather, in the way that the README of @x402/hono shows.
import { serve } from '@hono/node-server'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/hono'
import { Hono } from 'hono'

const { FACILITATOR, UPSTREAM, PRICE, PAY_TO, PORT } = process.env
const network = 'eip155:8453'
const accepts = { scheme: 'exact', price: `$${PRICE}`, network, payTo: PAY_TO }
const facilitator = new HTTPFacilitatorClient({ url: FACILITATOR })
const resources = new x402ResourceServer(facilitator).register(network, new ExactEvmScheme())
const app = new Hono()
app.use(paymentMiddleware({ 'GET /weather': { accepts, description: 'The weather of a city' } }, resources))
app.get('/weather', async (c) => {
  const station = await fetch(UPSTREAM)
  if (!station.ok) throw new Error('the station does not answer')
  return c.json({ city: c.req.query('city'), weather: await station.text() })
})
serve({ fetch: app.fetch, port: Number(PORT), hostname: '127.0.0.1' })
