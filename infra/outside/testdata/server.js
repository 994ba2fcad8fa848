// A seller of weather without a ledger, on Node alone: it asks for a payment, has the
// facilitator settle it, and answers.
const http = require("node:http");

const facilitator = process.env.FACILITATOR_URL;
const terms = {
  scheme: "exact",
  network: "eip155:8453",
  asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
  amount: "10000",
  payTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  maxTimeoutSeconds: 60,
  extra: { name: "USD Coin", version: "2" },
};

const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64");
const decode = (text) => JSON.parse(Buffer.from(text, "base64").toString());

async function settled(payment) {
  const reply = await fetch(facilitator.replace(/\/$/, "") + "/settle", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ x402Version: 2, paymentPayload: payment, paymentRequirements: terms }),
  });
  return reply.json();
}

async function answer(request, response) {
  const signature = request.headers["payment-signature"];
  const says = signature && (await settled(decode(signature)).catch(() => null));
  if (says?.success) {
    response.writeHead(200, { "content-type": "application/json", "payment-response": encode(says) });
    response.end(JSON.stringify({ city: "Oslo", celsius: -3 }));
    return;
  }
  const url = `http://${request.headers.host}${request.url}`;
  const required = { x402Version: 2, error: "Please pay", resource: { url }, accepts: [terms] };
  response.writeHead(402, { "content-type": "application/json", "payment-required": encode(required) });
  response.end(JSON.stringify(required));
}

http.createServer(answer).listen(4021, "127.0.0.1");
