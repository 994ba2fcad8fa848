// The receipt of an answer: what was asked, when, what was paid, and whether the service
// has signed it.

/** When an answer was given, in ms: as its receipt says, or the clock of the service. */
function givenAt(answer, settled) {
  let said = 0;
  try {
    said = 1000 * decode(receiptIn(settled).split(".")[1]).issuedAt;
  } catch {
    // no receipt that can be read
  }
  return said || Date.parse(answer.headers.get("Date")) || Date.now();
}

const receiptIn = (settled) => settled.extensions?.["offer-receipt"]?.info?.receipt?.signature;

/** Shows what was paid, and checks what the service has signed of it. Who keeps the file has the proof: the receipt and the bytes. */
function receipt(settled, bytes, name) {
  const terms = termsOf(payment), hash = words(settled.transaction);
  const facts = {
    transaction: hash, network: terms.network, payer: words(settled.payer) || payment.payer, payee: terms.payTo,
    amount: terms.amount, asset: terms.asset, url: location.origin + address, time: new Date().toISOString(),
    receipt: receiptIn(settled), body: new TextDecoder().decode(bytes),
  };
  const verdict = el("span", {}, "Checking …");
  checked(facts.receipt, settled, bytes).then(([text, holds]) => { verdict.replaceChildren(holds ? text : marked(text, "missing")); });
  const link = page.explorer && /^0x[0-9a-f]{64}$/i.test(hash)
    ? el("a", { href: `${page.explorer}/tx/${hash}`, rel: "noopener noreferrer", target: "_blank" }, mono(hash), el("span", { class: "unseen" }, " (opens the explorer in a new tab)"))
    : hash ? mono(hash) : new Text("none");
  part("receipt").replaceChildren(...rows([
    ["Question", new Text(all("h1")[0].textContent)], ["Answered", new Text(timeOf(answeredAt))],
    ["Amount", new Text(usdc(BigInt(terms.amount)) + " USDC"), terms.amount + " atomic units"], ["Signature", verdict],
    ["Transaction", link], ["Payer", facts.payer], ["Payee", facts.payee], ["Network", new Text(chainName), terms.network],
  ]));
  const json = JSON.stringify(facts, null, 2);
  part("receipt-tools").replaceChildren(copyButton("Copy receipt", json), downloadButton("Download receipt", name + "-receipt.json", json));
}

/** What a signed receipt proves, in words, and whether it holds: whose key, for this question and payment, over these bytes. */
async function checked(signed, settled, bytes) {
  if (!signed) return ["This answer is not signed."];
  let problem = "The receipt cannot be read.";
  try {
    const [head, payload, signature] = signed.split(".");
    const { kid } = decode(head), said = decode(payload), { resource } = offer;
    problem = "Not checked: the keys of this service cannot be read.";
    const { verificationMethod, assertionMethod } = await (await fetch("/.well-known/did.json", { signal: AbortSignal.timeout(10_000) })).json();
    const key = assertionMethod.includes(kid) && verificationMethod.find(({ id }) => id === kid);
    const { host } = new URL(resource.url);
    if (!key || !kid.startsWith(`did:web:${host.replace(":", "%3A")}#`)) return ["Invalid: no key of this service signed the receipt."];
    problem = "Not checked: this browser has no Ed25519.";
    const { subtle } = crypto;
    const valid = await subtle.verify("Ed25519", await subtle.importKey("jwk", key.publicKeyJwk, "Ed25519", false, ["verify"]), raw(signature), new TextEncoder().encode(head + "." + payload));
    const hash = hex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
    const is = (...list) => JSON.stringify(list);
    if (!valid || is(said.resourceUrl, said.request, said.network, said.payer, said.transaction ?? "", said.responseHashAlg, said.responseHashEncoding, said.responseHash) !==
      is(resource.url, page.request, settled.network, settled.payer, settled.transaction, "sha256", "raw", "0x" + hash)) return ["Invalid: the receipt does not match this answer."];
    return [`Valid: ${host} signed this answer.`, true];
  } catch {
    return [problem];
  }
}
