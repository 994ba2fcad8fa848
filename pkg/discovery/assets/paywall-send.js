// Sending a signature, and what comes back. A signature is kept under the
// page's address before it is sent: whatever is lost, a closed tab too, the
// same one is sent again, and it is never charged twice.

const address = location.pathname + location.search;
const slot = "payment " + address;
const patience = 40_000; // ms; the service answers within 30 s
const longest = 9000; // bytes of header; the gateway takes 10,240 in all
const owedCodes = page.owed.split(" ");
const once = "Trying again is safe: you are never charged twice.";

// {header, key, payer, at, done, doubt} or null. key: names the purchase. done: from when on its answer is
// kept by the service, or false. doubt: it was sent, and nothing that came back
// says for certain that it is unpaid.
// gone: another tab forgot it while this one was at work with it.
let payment = load();
let unsaved = false; // the storage is off or full: it lives as long as the page
let question = ""; // the key of what is asked now: every signature for it is one purchase
let doubted = false; // it was in doubt before the request that is under way
let stopped = false; // the page does not repeat the request by itself any more
let repeats = 0; // requests in a row that it repeated by itself

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
    .map(({ to }) => el("p", { class: "soft" }, "You signed for something else and have no answer yet: ", el("a", { href: to }, mono(to))));
}

const keeping = (...first) => el("p", { class: "soft" }, ...first, unsaved ? "This browser stores nothing: keep this page open until the answer is here." : "Saved in this browser: you can leave and come back.");

/** What was signed for is had again without signing. */
function offerKept(note = "") {
  const when = new Date(payment.at).toLocaleString();
  draw(null);
  all("[data-signs=from]")[0].textContent = payment.payer;
  show({
    stage: 3, status: note + (payment.done ? "You have paid for this. Get the answer again, free of charge." : "You have signed a payment for this. Get the answer: you are never charged twice."),
    body: [el("p", { class: "soft" }, `Signed ${when}.`)],
    actions: [button(payment.done ? "Get the answer again" : "Get the answer", send), button("Discard and pay again", another, "quiet")],
  });
}

/** Another signature is another payment: said before one in doubt is dropped. */
function another() {
  if (payment.done || !payment.doubt) return forget();
  show({
    stage: 3,
    problem: { kind: "warn", title: "You might pay twice", text: "The payment that you signed may have arrived. " + once },
    actions: [button("Get the answer", send), button("Pay a second time", forget, "quiet")],
  });
}

function forget() {
  keep(null);
  question = "";
  look();
}

async function pay(authorization, signature) {
  const header = encode({
    x402Version: 2, accepted: terms,
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

/** Sends the signature. alone says that the page repeats it by itself: what is on show stays until there is news. */
async function send(alone = false) {
  doubted = payment.doubt && !payment.done;
  keep({ ...payment, doubt: true });
  if (alone) {
    turn++;
    repeats++;
  } else {
    stopped = false;
    repeats = 0;
    show({
      stage: 3, status: "Sending the payment.",
      body: [el("h3", { tabindex: "-1", class: "working" }, "Getting the answer"), keeping()],
    });
  }
  part("stage").classList.toggle("alone", alone);
  part("stage").setAttribute("aria-busy", "true");
  const slow = setTimeout(() => { if (!alone) say("Confirming the payment. The answer takes some seconds."); }, 1500);
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
    again({ kind: "warn", title: "Connection lost", text: "Your payment may or may not have arrived. " + once }, 0, true);
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
  const { charged, retryable, ...error } = body?.error ?? {};
  const code = words(error.code), message = words(error.message), title = sentence(message);
  const wait = Math.min(Number(answer.headers.get("Retry-After")) || 0, 3600);
  if (!code) {
    again({ kind: "warn", title: "We can’t read what the server sent", text: "Your payment may or may not have arrived. " + once, code: "HTTP " + answer.status }, wait, true);
  } else if (retryable) {
    if (charged === false) payment.doubt = doubted;
    again({ kind: "warn", code, ...later(answer.status, message, charged) }, wait, answer.status === 409 || charged || payment.doubt, charged);
  } else if (charged && owedCodes.includes(code)) {
    const { amount } = termsOf(payment), contact = all("#contact a")[0];
    done(answer, bytes, body, {
      title: "We could not get you an answer", code,
      text: ["You will be refunded $", usdc(BigInt(amount)), " to ", mono(payment.payer), ". You need do nothing.",
        ...(contact ? [" If you have a question, ", el("a", { href: contact.href }, "contact us"), "."] : [])],
    });
  } else if (charged) {
    done(answer, bytes, body, { kind: "warn", title, text: ["That is the answer you paid for."], code });
  } else {
    notCharged(title, charged === false && !doubted, code);
  }
}

/** The words for an answer after which the same signature may be sent again. */
function later(status, message, charged) {
  if (status === 409) return { title: "Your payment is being processed", text: "Another request with the same signature is under way. " + once };
  if (status === 429) return { title: "Too many requests", text: `${message} Your signature stays good. ${once}` };
  if (charged === true) return { title: "Paid. We still owe you the answer", text: "The lookup failed on our side. Trying again is free." };
  if (charged === false && !payment.doubt) return { title: "Not charged yet", text: `${message} Your signature is unused, and stays good.` };
  return { title: "Payment not confirmed yet", text: "Your payment may or may not have arrived. " + once };
}

const inWords = (seconds) => (seconds > 90 ? Math.ceil(seconds / 60) + " min" : seconds + " s");

/**
 * Sends the same signature again after a wait: by itself, until the person stops it, where
 * safe says that no new charge can come of it; otherwise, when the person says so.
 */
function again(problem, wait, safe, paid = false) {
  keep(payment); // as it is known now
  const alone = safe && !stopped;
  const clock = el("span");
  const pause = alone && wait <= 0 ? Math.min(3 * 2 ** repeats, 60) : wait;
  const due = Date.now() + 1000 * pause;
  const retry = button(paid ? "Try again, free of charge" : "Try again", send);
  const stop = button("Stop", () => {
    stopped = true;
    if (!part("stage").hasAttribute("aria-busy")) again(problem, wait && Math.ceil((due - Date.now()) / 1000), safe, paid);
  }, "quiet");
  show({ stage: 3, problem, body: [keeping(clock)], actions: [alone ? stop : retry], calm: repeats > 0 });
  const mine = turn;
  const tick = () => {
    if (turn !== mine) return;
    const left = Math.ceil((due - Date.now()) / 1000);
    if (left > 0) {
      clock.textContent = (alone ? "Trying again in " : "You can try again in ") + inWords(left) + ". ";
      if (!alone) retry.setAttribute("aria-disabled", "true");
      setTimeout(tick, 1000);
    } else if (alone) {
      clock.textContent = "Trying again … ";
      send(true).catch(broken);
    } else {
      retry.removeAttribute("aria-disabled");
      // In the place of the countdown: another line would move the button down
      // at the moment in which it can be pressed.
      if (wait > 0) part("said").textContent = clock.textContent = "You can try again. ";
    }
  };
  tick();
}

/** 402: this signature buys nothing. Another one may, on the same terms. */
function notAccepted(answer, body) {
  const said = words(body?.error ?? body?.message), reason = said ? `Reason: ${sentence(said)}.` : "The service gave no reason.";
  const title = "The payment was not accepted";
  const { success } = header(answer, "PAYMENT-RESPONSE");
  if (doubted && typeof success !== "boolean") {
    show({
      stage: 3, problem: { title, text: reason + " An earlier request with this signature may have been paid. " + once },
      actions: [button("Try again", send), button("Discard and pay again", another, "quiet")],
    });
    return;
  }
  keep(null);
  const off = Math.round((Date.parse(answer.headers.get("Date")) - Date.now()) / 1000);
  skew = Math.abs(off) > 30 ? off : 0;
  const clock = skew ? ` The clock of this device is ${Math.abs(skew)} s ${skew > 0 ? "slow" : "fast"}; the next signature uses the service’s clock.` : "";
  const same = asOffered(header(answer, "PAYMENT-REQUIRED")) === asOffered(offer);
  show({
    stage: 2,
    problem: { title, text: `${reason} This request was not charged.${success ? " An earlier one was, and its answer is not kept any longer." : ""}${clock}${same ? "" : " The terms have changed: reload the page to see them."}` },
    actions: same ? [button("Sign another payment", () => (wallet ? checkChain() : look()))] : [button("Reload the page", () => location.reload())],
  });
}

/** What an offer says but for its retry token, of which each has another, and what the page's has not: a signature and a listing. */
const asOffered = (o) => JSON.stringify([o.resource?.url, o.accepts, Object.entries(o.extensions ?? {}).filter(([key]) => !["retry-token", "offer-receipt", "bazaar"].includes(key))]);

/** A header of an answer, decoded; empty when none came that can be read. */
function header(answer, name) {
  try {
    return decode(answer.headers.get(name)) ?? {};
  } catch {
    return {};
  }
}

/** Final, and free: the request itself is at fault. */
function notCharged(reason, certain, code) {
  if (certain) keep(null);
  show({
    stage: 2, problem: { title: reason, code, text: certain ? "You were not charged. Your signature is of no further use." : "Your payment may or may not have arrived. " + once },
    actions: certain ? [button("Start again", look, "quiet")] : [button("Try again", send)],
  });
}

/** Shows an answer and its receipt in the place of what led to it. problem is set when it is an error. */
function done(answer, bytes, body, problem = null) {
  const replayed = answer.headers.get("Idempotent-Replayed") === "true";
  keep({ ...payment, done: payment.done || (replayed ? payment.at : Date.now()) }); // one that was made before can be as old as that
  const owed = words(answer.headers.get("Answer-Owed"));
  const settled = header(answer, "PAYMENT-RESPONSE");
  answeredAt = givenAt(answer, settled);
  const charge = (replayed ? "This is the stored answer; nothing new was charged." : `Paid ${usdc(BigInt(termsOf(payment).amount))} USDC.`) +
    (owed && ` Still owed: ${owed}.`);
  const json = legible(JSON.stringify(body, null, 2));
  const name = (page.slug + "-" + (new URLSearchParams(location.search).get("domain") ?? "answer")).replace(/[^A-Za-z0-9.-]+/g, "_").slice(0, 80);
  show({ stage: 4 });
  const line = problem ? { says: problem.title, tone: problem.kind ?? "bad" } : verdict(verdicts[""], body) ?? { says: "The answer", tone: "" };
  part("result-title").replaceChildren(line.says);
  part("result-title").className = "verdict " + line.tone;
  part("outcome").replaceChildren(...(problem ? [el("p", {}, ...problem.text, ...footnote(problem.code))] : []), el("p", { class: "soft" }, charge + " ", el("a", { href: "#paid" }, "Receipt")));
  part("facts").replaceChildren(...(problem ? [] : tables(body, "Facts")));
  part("answer-json").replaceChildren(json);
  part("answer-tools").replaceChildren(copyButton("Copy answer", json), downloadButton("Download answer", name + ".json", json));
  receipt(settled, bytes, name);
  part("next").replaceChildren(...(owed ? [button("Get the rest, free of charge", send)] : []), button((document.forms[0] ? "Look up again" : "Pay again") + ` (${price})`, forget, "quiet"));
  part("result").hidden = false;
  measure();
  part("result-title").focus();
  scrollTo(0, 0);
}

window.addEventListener("resize", measure);
window.addEventListener("eip6963:announceProvider", announce);
window.addEventListener("pageshow", (e) => { if (e.persisted && !unsaved) location.reload(); }); // what it remembers may be old
window.addEventListener("ethereum#initialized", () => { if (choosing) choose(); });
if (page.ready === "yes") start();
