// Sending a signature, and what comes back. A signature is kept under the
// page's address before it is sent: whatever is lost, a closed tab too, the
// same one is sent again, and it is never charged twice.

const address = location.pathname + location.search;
const slot = "payment " + address;
const patience = 40_000; // ms; the service answers within 30 s
const longest = 9000; // bytes of header; the gateway takes 10,240 in all
const owedCodes = page.owed.split(" ");
const once = "Send the same signature again: it is never charged twice.";

// {header, key, payer, at, done, doubt} or null. key: names the purchase. done: from when on its answer is
// kept by the service, or false. doubt: it was sent, and nothing that came back
// says for certain that it is unpaid.
// gone: another tab forgot it while this one was at work with it.
let payment = load();
let unsaved = false; // the storage is off or full: it lives as long as the page
let question = ""; // the key of what is asked now: every signature for it is one purchase
let doubted = false; // it was in doubt before the request that is under way

/**
 * Whether a signature still matters. The service replays an answer for a day.
 * It remembers a payment in doubt until that is decided, for which evidence can
 * come late; a month is what this page waits for it. One that is surely unpaid
 * is good for minutes.
 */
function live({ at, done, doubt }) {
  return Date.now() - (done || at) < (doubt && !done ? 31 : 1) * 86_400_000;
}

/** What is kept, or null. What has ceased to matter is dropped. */
function load(key = slot) {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    BigInt(termsOf(kept).amount);
    if (live(kept)) return typeof kept.payer === "string" ? kept : null;
    localStorage.removeItem(key);
  } catch {
    // none, not ours, or the storage is off
  }
  return null;
}

/** Keeps a signature, or forgets it, and tells the other tabs. Another one, signed there since, stays. */
function keep(value) {
  const { header, gone } = value ?? payment;
  payment = value;
  unsaved = false;
  if (gone || (load() ?? { header }).header !== header) return;
  try {
    if (value) localStorage.setItem(slot, JSON.stringify(value));
    else localStorage.removeItem(slot);
  } catch {
    unsaved = value !== null;
  }
  tabs?.postMessage([header, value, unsaved]);
}

window.onbeforeunload = (e) => { if (unsaved && !payment.done) e.preventDefault(); };

// Another tab on this address must not sign for it once more. They share the
// storage; the channel tells them at once, and when the storage is off.
const tabs = window.BroadcastChannel && new BroadcastChannel(slot);
if (tabs) {
  tabs.onmessage = ({ data }) => {
    if (data) heard(...data);
    else if (payment) keep(payment);
  };
}

/** What another tab did: it keeps a signature, or forgot it (kept is null). */
function heard(header, kept, off) {
  if (payment ? payment.header !== header : !kept || !live(kept)) return;
  if (payment && (part("stage").hasAttribute("aria-busy") || !part("result").hidden)) {
    doubted = true; // a request of theirs may pay, whatever is said of this one
    if (kept) payment.done ||= kept.done;
    else payment.gone = true;
    return;
  }
  const known = payment;
  [payment, unsaved] = [kept, off];
  if (pressed || (known && kept)) return; // who signs looks again when the wallet has answered
  if (kept) offerKept();
  else look();
}

/** What a signature was made for, whatever is asked for today. */
function termsOf(kept) {
  return decode(kept.header).accepted;
}

/** Says whether this address is signed for already, here or in another tab, and offers to go on. */
function found(note = "") {
  payment ??= load();
  if (payment) offerKept(note);
  return payment !== null;
}

function start() {
  if (found()) return;
  look();
  tabs?.postMessage(null);
}

/** Other addresses whose signature has had no answer yet: the last few. */
function others() {
  let keys = [];
  try {
    keys = Object.keys(localStorage);
  } catch {
    // the storage is off
  }
  return keys.filter((key) => key.startsWith("payment /v1/")).map((key) => ({ ...load(key), to: key.slice(8) }))
    .filter((kept) => kept.done === false).sort((a, b) => b.at - a.at).slice(0, 5)
    .map(({ to }) => el("p", { class: "soft" }, "You signed for another address and have no answer: ", el("a", { href: to }, el("code", {}, to))));
}

const keeping = (...first) => el("p", { class: "soft" }, ...first, unsaved ? "This browser stores nothing: keep this page open until the answer is here." : "The signature is kept until the answer is here.");

/** What was signed for is had again without signing. */
function offerKept(note = "") {
  const when = new Date(payment.at).toLocaleString();
  draw(null);
  show({
    stage: 3, status: note + (payment.done ? "You have paid for this address: get the answer again, no new charge." : "You have signed for this address: get the answer, no new charge."),
    body: [el("p", { class: "soft" }, `Signed ${when} by `, el("code", {}, payment.payer), ".")],
    actions: [button(payment.done ? "Get the answer again" : "Send the same signature", send), button("Forget it and pay anew", anew, "quiet")],
  });
}

/** Another signature is another payment: said before one in doubt is dropped. */
function anew() {
  if (payment.done || !payment.doubt) return forget();
  show({
    stage: 3,
    problem: { kind: "warn", title: "This can be a second payment", text: "It is not known whether the signature that you made is paid. " + once },
    actions: [button("Send the same signature", send), button("Pay a second time", forget, "quiet")],
  });
}

function forget() {
  keep(null);
  question = "";
  look();
}

async function pay(authorization, signature) {
  const header = encode({
    x402Version: 2, resource: offer.resource, accepted: terms,
    payload: { signature, authorization }, extensions: offer.extensions,
  });
  if (header.length > longest) {
    review({ title: "The wallet’s signature is too long to be sent", text: "Nothing was charged. Use another wallet." });
    return;
  }
  question ||= random(16);
  keep({ header, key: question, payer: authorization.from, at: Date.now(), done: false, doubt: false });
  await send();
}

async function send() {
  doubted = payment.doubt && !payment.done;
  keep({ ...payment, doubt: true });
  show({
    stage: 3, status: "Sending the payment.",
    body: [el("h3", { tabindex: "-1", class: "working" }, "Getting the answer"), keeping()],
  });
  part("stage").setAttribute("aria-busy", "true");
  const slow = setTimeout(() => say("Confirming the payment and looking up. This takes some seconds; keep the page open."), 1500);
  const giveUp = new AbortController();
  const late = setTimeout(() => giveUp.abort(), patience);
  let answer, bytes;
  try {
    answer = await fetch(address, {
      headers: { Accept: "application/json", "PAYMENT-SIGNATURE": payment.header, ...(/^[0-9a-f]{32}$/.test(payment.key) && { "Idempotency-Key": payment.key }) },
      cache: "no-store", credentials: "omit", redirect: "error", signal: giveUp.signal,
    });
    bytes = await answer.arrayBuffer();
  } catch {
    again({ title: "The connection was lost", text: "It is not known whether the payment arrived. " + once }, 0);
    return;
  } finally {
    clearTimeout(slow);
    clearTimeout(late);
  }
  judge(answer, bytes);
}

/**
 * Decides what an answer means, by what it says of money. That a request was
 * free says nothing of an earlier one with the same signature: who doubted
 * before goes on to, until there is an answer or a receipt.
 */
function judge(answer, bytes) {
  let body = null;
  try {
    body = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    // not ours: a gateway's page, or cut off
  }
  if (answer.status === 200 && body) return done(answer, bytes, body);
  if (answer.status === 402) return notAccepted(answer, body);
  const { code, message, charged, retryable } = body?.error ?? {};
  const wait = Math.min(Number(answer.headers.get("Retry-After")) || 0, 3600);
  if (!code) {
    again({ title: `Answer ${answer.status} could not be read`, text: "It is not known whether the payment went through. " + once }, wait);
  } else if (retryable) {
    if (charged === false) payment.doubt = doubted;
    again({ kind: "warn", ...later(answer.status, words(code), words(message), charged) }, wait, answer.status === 409);
  } else if (charged && owedCodes.includes(code)) {
    done(answer, bytes, body, { title: `${words(code)}: no lookup is left for this payment`, text: words(message) + " The payment stands and the operator owes you a refund. Keep the receipt; the contact is at the end of this page." });
  } else if (charged) {
    done(answer, bytes, body, { kind: "warn", title: `${words(code)}: ${words(message)}`, text: "This is an answer about the domain, so it is charged." });
  } else {
    notCharged(`${words(code)}: ${words(message)}`, charged === false && !doubted);
  }
}

/** The words for an answer after which the same signature may be sent again. */
function later(status, code, message, charged) {
  if (status === 409) return { title: "This payment is being settled", text: "Another request with the same signature is under way. It is sent again by itself after the wait; no new charge." };
  if (status === 429) return { title: "Too many requests", text: `${message} The signature stays good; it is never charged twice.` };
  if (charged === true) return { title: `Paid, and the answer is owed (${code})`, text: `${message} The lookup runs again, without a new charge.` };
  if (charged === false && !payment.doubt) return { title: `Not charged yet (${code})`, text: `${message} The signature is unused and stays good.` };
  return { title: `Not known yet whether it is paid (${code})`, text: "The service could not confirm the payment yet. " + once };
}

/** Offers to send the same signature again, after a wait when one was asked for. */
function again(problem, wait, alone = false) {
  keep(payment); // as it is known now
  const clock = el("span");
  const retry = button("Send the same signature again", send);
  show({ stage: 3, problem, body: [keeping(clock)], actions: [retry] });
  const mine = turn;
  let left = alone ? Math.max(wait, 1) : wait;
  const tick = () => {
    if (turn !== mine) return;
    if (left > 0) {
      clock.textContent = `Wait ${left} s. `;
      retry.setAttribute("aria-disabled", "true");
      left--;
      setTimeout(tick, 1000);
      return;
    }
    retry.removeAttribute("aria-disabled");
    clock.textContent = "";
    if (alone) press(retry, send);
    // In the place of the countdown: another line would move the button down
    // at the moment in which it can be pressed.
    else if (wait > 0) part("said").textContent = clock.textContent = "The wait is over. ";
  };
  tick();
}

/** 402: this signature buys nothing. Another one may, on the same terms. */
function notAccepted(answer, body) {
  const reason = (words(body?.error ?? body?.message) || "The service gave no reason").replace(/\.$/, "");
  const title = "The payment was not accepted";
  const { success } = header(answer, "PAYMENT-RESPONSE");
  if (doubted && typeof success !== "boolean") {
    show({
      stage: 3, problem: { title, text: reason + ". It is not known whether an earlier request with this signature was paid. " + once },
      actions: [button("Send the same signature again", send), button("Forget it and pay anew", anew, "quiet")],
    });
    return;
  }
  keep(null);
  const off = Math.round((Date.parse(answer.headers.get("Date")) - Date.now()) / 1000);
  skew = Math.abs(off) > 30 ? off : 0;
  const clock = skew ? ` The clock of this device is ${Math.abs(skew)} s ${skew > 0 ? "slow" : "fast"}; the next signature goes by that of the service.` : "";
  const same = asOffered(header(answer, "PAYMENT-REQUIRED")) === asOffered(offer);
  show({
    stage: 2,
    problem: { title, text: `${reason}. This request was not charged.${success ? " An earlier one was, and its answer is not kept any longer." : ""}${clock}${same ? "" : " The terms have changed: reload the page to see them."}` },
    actions: same ? [button("Sign another payment", () => (wallet ? checkChain() : look()))] : [button("Reload the page", () => location.reload())],
  });
}

/** What an offer says but for its retry token, of which each has another, and its signature, which the page's has not. */
const asOffered = (o) => JSON.stringify([o.resource, o.accepts, Object.entries(o.extensions ?? {}).filter(([key]) => key !== "retry-token" && key !== "offer-receipt")]);

/** A header of an answer, decoded; empty when none came that can be read. */
function header(answer, name) {
  try {
    return decode(answer.headers.get(name)) ?? {};
  } catch {
    return {};
  }
}

/** Final, and free: the request itself is at fault. */
function notCharged(reason, certain) {
  if (certain) keep(null);
  show({
    stage: 2, problem: { title: reason, text: certain ? "Not charged. Ask for something else; the signature is of no further use." : "Whether it is paid is not known. " + once },
    actions: certain ? [button("Start again", look, "quiet")] : [button("Send the same signature again", send)],
  });
}

/** Shows an answer and its receipt in the place of what led to it. problem is set when it is an error. */
function done(answer, bytes, body, problem = null) {
  const replayed = answer.headers.get("Idempotent-Replayed") === "true";
  keep({ ...payment, done: payment.done || (replayed ? payment.at : Date.now()) }); // one that was made before can be as old as that
  const owed = words(answer.headers.get("Answer-Owed"));
  const charge = (replayed ? "This is the stored answer; nothing new was charged." : `Paid ${usdc(BigInt(termsOf(payment).amount))} USDC.`) +
    (owed && ` Still owed: ${owed}.`);
  const json = legible(JSON.stringify(body, null, 2));
  const name = (page.slug + "-" + (new URLSearchParams(location.search).get("domain") ?? "answer")).replace(/[^A-Za-z0-9.-]+/g, "_").slice(0, 80);
  show({ stage: 4 });
  const line = problem ? { says: problem.title, tone: problem.kind ?? "bad" } : verdict(verdicts[""], body) ?? { says: "The answer", tone: "" };
  part("result-title").replaceChildren(line.says);
  part("result-title").className = "verdict " + line.tone;
  part("outcome").replaceChildren(...(problem ? [el("p", {}, problem.text)] : []), el("p", { class: "soft" }, charge + " ", el("a", { href: "#paid" }, "Receipt")));
  part("facts").replaceChildren(...(problem ? [] : tables(body, "Facts")));
  part("answer-json").replaceChildren(colored(json));
  part("answer-tools").replaceChildren(copyButton("Copy answer", json), downloadButton("Download answer", name + ".json", json));
  receipt(answer, bytes, name);
  part("next").replaceChildren(...(owed ? [button("Get what is owed, without a charge", send)] : []), button("Pay for a new answer", forget, "quiet"));
  part("result").hidden = false;
  part("result-title").focus();
  scrollTo(0, 0);
}

/** Shows what was paid, and checks what the service has signed of it. Who keeps the file has the proof: the receipt and the bytes. */
function receipt(answer, bytes, name) {
  const settled = header(answer, "PAYMENT-RESPONSE"), terms = termsOf(payment);
  const hash = words(settled.transaction);
  const facts = {
    transaction: hash, network: terms.network, payer: words(settled.payer) || payment.payer, payee: terms.payTo,
    amount: terms.amount, asset: terms.asset, url: location.origin + address, time: new Date().toISOString(),
    receipt: settled.extensions?.["offer-receipt"]?.info?.receipt?.signature, body: new TextDecoder().decode(bytes),
  };
  const verdict = el("span", {}, "Checking …");
  checked(facts.receipt, settled, bytes).then((text) => { verdict.textContent = text; });
  const link = page.explorer && /^0x[0-9a-f]{64}$/i.test(hash)
    ? el("a", { href: `${page.explorer}/tx/${hash}`, rel: "noopener noreferrer", target: "_blank" }, el("code", {}, hash), el("span", { class: "unseen" }, " (opens the explorer in a new tab)"))
    : el("code", {}, hash || "none was sent");
  part("receipt").replaceChildren(...rows([
    ["Signature", verdict], ["Transaction", link], ["Payer", facts.payer], ["Payee", facts.payee], ["Amount", new Text(usdc(BigInt(terms.amount)) + " USDC"), terms.amount + " atomic units"], ["Network", new Text(chainName), terms.network],
  ]));
  const json = JSON.stringify(facts, null, 2);
  part("receipt-tools").replaceChildren(copyButton("Copy receipt", json), downloadButton("Download receipt", name + "-receipt.json", json));
}

/** What a signed receipt proves, in words: whose key, for this question and payment, over these bytes. */
async function checked(signed, settled, bytes) {
  if (!signed) return "None: nobody signed for this answer.";
  let problem = "It cannot be read.";
  try {
    const [head, payload, signature] = signed.split(".");
    const { kid } = decode(head), said = decode(payload), { resource } = decode(payment.header);
    problem = "The keys of this service cannot be read: not checked.";
    const { verificationMethod, assertionMethod } = await (await fetch("/.well-known/did.json", { signal: AbortSignal.timeout(10_000) })).json();
    const key = assertionMethod.includes(kid) && verificationMethod.find(({ id }) => id === kid);
    if (!key || !kid.startsWith(`did:web:${new URL(resource.url).host.replace(":", "%3A")}#`)) return "DOES NOT HOLD: no key of this service.";
    problem = "This browser has no Ed25519: not checked.";
    const { subtle } = crypto;
    const valid = await subtle.verify("Ed25519", await subtle.importKey("jwk", key.publicKeyJwk, "Ed25519", false, ["verify"]), raw(signature), new TextEncoder().encode(head + "." + payload));
    const hash = hex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
    const is = (...list) => JSON.stringify(list);
    if (!valid || is(said.resourceUrl, said.request, said.network, said.payer, said.transaction ?? "", said.responseHashAlg, said.responseHashEncoding, said.responseHash) !==
      is(resource.url, page.request, settled.network, settled.payer, settled.transaction, "sha256", "raw", "0x" + hash)) return "DOES NOT HOLD for this answer.";
    return `Signed by ${words(kid)}; covers this answer.`;
  } catch {
    return problem;
  }
}

window.addEventListener("eip6963:announceProvider", announce);
window.addEventListener("pageshow", (e) => { if (e.persisted && !unsaved) location.reload(); }); // what it remembers may be old
window.addEventListener("ethereum#initialized", () => { if (choosing) choose(); });
if (page.ready === "yes") start();
