// The loop around a stock client. It calls until it has a 200, and knows nothing about
// payments. It prints "ready", reads one line of JSON with a list of purchases, and makes all
// of them at the same time. For each purchase it prints a line: the status of every call, the
// answer and, unless "once" is set, the answer to one more round of calls.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

// buy makes one call and returns {status, body}. It throws if no complete answer came.
export async function loops(buy) {
  console.log('ready')
  for await (const line of createInterface({ input: process.stdin })) {
    const { pause, purchases } = JSON.parse(line)
    await Promise.all(purchases.map((purchase) => loop(buy, purchase, pause)))
    return
  }
}

// posted returns the body that a purchase posts, newly made for every call: a form, or an
// object to send as JSON. In a multipart form, the notes are a file.
export function posted({ kind, ...fields }) {
  if (kind === 'json') return fields
  if (kind === 'form') return new URLSearchParams(fields)
  const form = new FormData()
  form.set('city', fields.city)
  form.set('notes', new Blob([fields.notes], { type: 'text/plain' }), 'notes.txt')
  return form
}

async function loop(buy, purchase, pause) {
  const told = []
  const until200 = async () => {
    for (let got; ; await sleep(pause)) {
      try {
        got = await buy(purchase)
      } catch (error) {
        got = { status: 0, body: String(error?.cause ?? error) } // no complete answer
      }
      told.push(got.status)
      if (got.status === 200 || told.length >= purchase.calls) return got
    }
  }
  const answer = await until200()
  const again = answer.status === 200 && !purchase.once ? await until200() : answer
  console.log(JSON.stringify({ id: purchase.id, told, answer, again }))
}
