// The loop around a stock client: it calls until it has a 200, and knows
// nothing of payments. It reads one line of JSON, a list of purchases, once it
// has said that it is ready, and makes all of them side by side. For each it
// prints a line: the status of every call, the answer, and, unless it buys once, what
// the same loop got when it began once more.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

// buy makes one call and returns {status, body}; it throws when there was no
// whole answer.
export async function loops(buy) {
  console.log('ready')
  for await (const line of createInterface({ input: process.stdin })) {
    const { pause, purchases } = JSON.parse(line)
    await Promise.all(purchases.map((purchase) => loop(buy, purchase, pause)))
    return
  }
}

// posted is what a purchase posts, made for every call: an object, which is JSON, or a
// form. The notes of a multipart form are a file.
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
        got = { status: 0, body: String(error?.cause ?? error) } // no whole answer
      }
      told.push(got.status)
      if (got.status === 200 || told.length >= purchase.calls) return got
    }
  }
  const answer = await until200()
  const again = answer.status === 200 && !purchase.once ? await until200() : answer
  console.log(JSON.stringify({ id: purchase.id, told, answer, again }))
}
