// These scenarios are about what the tabs of a browser know about each other's signatures, and
// what a tab knows that is opened later. The page must never lead a person who has signed in
// this browser to sign a second time.

import assert from "node:assert/strict";
import { kept, pressSign, resend, says, signed, tab } from "./money.mjs";
import { Wallet } from "./wallet.mjs";
import { answered, holdAnswers, toAnswer, toReview } from "./wallets.mjs";

const hour = 3_600_000;
const fresh = (stage) => stage.sees("Connecting shares your address with this page");
const lost = "Connection lost";
const signedBefore = "You have signed a payment for this.";
const paidBefore = "You have paid for this.";

/** Sets a page's clock ahead. */
function ahead(ms) {
  const now = Date.now;
  Date.now = () => now() + ms;
}

/**
 * Removes the channel on which a page hears from other tabs. The page then knows only what is
 * in the storage.
 */
function deaf() {
  delete window.BroadcastChannel;
}

/** Turns a page's storage off, as a person can do in the settings. */
function noStorage() {
  for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
  }
}

/** Makes every write to the storage fail, as if the storage were full. */
function fullStorage() {
  Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
}

/**
 * The tab or the browser is closed while the payment is in doubt or is being sent. The address
 * is then opened again.
 */
export async function closed(stage, { sending, browser }) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  if (sending) await page.evaluate(() => { window.fetch = () => new Promise(() => {}); });
  await pressSign(page);
  await stage.sees(sending ? "Getting the answer" : lost);
  if (browser) {
    const storageState = await stage.contexts[0].storageState();
    await stage.contexts[0].close();
    await stage.open({ wallets: [wallet], storageState });
  } else {
    await page.close();
    await tab(stage);
  }
  await stage.sees(signedBefore);
  await stage.sees(wallet.address, "[data-signs=from]");
  return resend(stage, wallet);
}

/**
 * The address is opened again after some hours. Up to a certain age, the page offers the kept
 * payment; after that, it drops the payment silently.
 */
export async function aged(stage, { comes, offers, until, from }) {
  const wallet = new Wallet();
  const first = await signed(stage, wallet);
  if (comes) await stage.sees(comes);
  else await answered(stage);
  await first.close();
  const before = await tab(stage, ahead, until * hour);
  await stage.sees(offers);
  await before.close();
  const after = await tab(stage, ahead, from * hour);
  await fresh(stage);
  assert.equal(await after.locator("#problem").innerText(), "");
  assert.equal(await kept(after), 0);
  await toReview(stage);
  assert.equal(wallet.signed.length, 1);
}

/**
 * Two tabs show the sign button, and cannot send each other messages. One tab pays. In the
 * other, the wallet is not asked to sign, or its signature is not sent.
 */
export async function twoAtTheButton(stage, { asked }) {
  const [wallet, other] = [new Wallet(), new Wallet({ name: "Other wallet" })];
  const signing = "eth_signTypedData_v4";
  const first = await stage.open({ wallets: [wallet, other] });
  await first.addInitScript(deaf);
  await first.reload();
  await toReview(stage);
  const second = await tab(stage, deaf);
  await toReview(stage, "Other wallet");
  const held = other.hold(signing);
  if (asked) {
    await pressSign(second);
    await says(second, "Waiting for Other wallet");
  }
  await pressSign(first);
  await first.locator("#result").waitFor();
  // The other tab reads what this tab stores only a moment later.
  await second.waitForFunction(() => Object.values(localStorage).some((text) => JSON.parse(text).done));
  if (!asked) await pressSign(second);
  held.release();
  await says(second, paidBefore);
  if (asked) await says(second, "Another tab was faster: what you just signed was not sent.");
  assert.equal(other.asked(signing), asked ? 1 : 0, "the other wallet was asked");
  await stage.click("Get the answer again");
  await answered(stage);
}

/**
 * The signature is forgotten in one tab. The other tab must drop it too, whether the storage
 * is on, off or full.
 */
export async function forgotten(stage, { storage }) {
  const wallet = new Wallet();
  const before = { on: () => {}, off: noStorage, full: fullStorage }[storage];
  const first = await stage.open({ wallets: [wallet] });
  await first.addInitScript(before);
  await first.reload();
  await toReview(stage);
  await pressSign(first);
  await says(first, lost);
  if (storage !== "on") await says(first, "This browser stores nothing: keep this page open");
  const second = await tab(stage, before);
  await stage.sees(signedBefore);
  const held = () => second.evaluate(() => !window.dispatchEvent(new Event("beforeunload", { cancelable: true })));
  assert.equal(await held(), storage !== "on", "a signature that is nowhere else holds the page");
  await stage.click("Discard and pay again");
  await stage.sees("You might pay twice");
  await stage.click("Pay a second time");
  await fresh(stage);
  await says(first, "Connecting shares your address with this page");
  assert.equal(await held(), false);
  await tab(stage, before);
  await fresh(stage);
  assert.equal(wallet.signed.length, 1);
}

/**
 * One tab waits for the answer. Another tab is opened in the meantime, and forgets the
 * signature.
 */
async function forgetsMeanwhile(stage, wallets, before) {
  const first = await stage.open({ wallets });
  await first.addInitScript(before);
  await first.reload();
  await toReview(stage);
  const answers = holdAnswers(first);
  await answers.ready;
  await pressSign(first);
  await says(first, "Getting the answer");
  const second = await tab(stage, before);
  await stage.sees(signedBefore);
  await stage.click("Discard and pay again");
  await stage.click("Pay a second time");
  await stage.sees("Connect Test wallet");
  return { first, second, answers };
}

/** The late answer is shown, but the signature stays forgotten. */
export async function forgottenMeanwhile(stage) {
  const wallet = new Wallet();
  const { first, second, answers } = await forgetsMeanwhile(stage, [wallet], () => {});
  await answers.release();
  await first.locator("#result").waitFor();
  await tab(stage);
  await fresh(stage);
  assert.equal(await kept(second), 0);
  await says(second, "Connecting shares your address with this page");
  assert.equal(wallet.signed.length, 1);
}

/**
 * The late answer must not replace what was signed in the meantime, whether or not the tabs
 * hear of each other.
 */
export async function paidAnewMeanwhile(stage, { hears }) {
  const [wallet, other] = [new Wallet(), new Wallet({ name: "Other wallet" })];
  const { first, second, answers } = await forgetsMeanwhile(stage, [wallet, other], hears ? () => {} : deaf);
  await toReview(stage, "Other wallet");
  await pressSign(second);
  await says(second, lost);
  await answers.release();
  await first.locator("#result").waitFor();
  await first.getByRole("button", { name: /^Look up again/ }).click();
  await first.getByRole("button", { name: "Connect Test wallet" }).click();
  await pressSign(first);
  await says(first, signedBefore);
  assert.equal(wallet.signed.length, 1);
  await tab(stage);
  await stage.sees(signedBefore);
  await stage.sees(other.address, "[data-signs=from]");
  return resend(stage, other);
}

/**
 * The answer comes days after the signature. If the service made it only then, the page keeps
 * it for a day. A replayed answer may be older than that, and is not kept.
 */
export async function answeredLate(stage, { replayed }) {
  const wallet = new Wallet();
  const first = await signed(stage, wallet);
  await stage.sees(lost);
  await first.close();
  const late = await tab(stage, ahead, 100 * hour);
  await resend(stage, wallet);
  await late.close();
  if (!replayed) {
    await tab(stage, ahead, 123 * hour);
    await stage.sees(paidBefore);
  }
  await tab(stage, ahead, (replayed ? 100 : 124) * hour);
  await fresh(stage);
}

/**
 * The signature of one tab is refused while the wallet of another tab is asked to sign. The
 * other tab must continue.
 */
export async function refusedElsewhere(stage) {
  const [wallet, other] = [new Wallet(), new Wallet({ name: "Other wallet" })];
  const first = await stage.open({ wallets: [wallet, other] });
  await toReview(stage);
  const second = await tab(stage);
  await toReview(stage, "Other wallet");
  other.refuse("eth_signTypedData_v4");
  const held = other.hold("eth_signTypedData_v4");
  await pressSign(second);
  await says(second, "Waiting for Other wallet");
  await second.evaluate((slot) => {
    window.heard = new Promise((done) => {
      new BroadcastChannel(slot).onmessage = ({ data }) => { if (data[1] === null) setTimeout(done); };
    });
  }, "payment " + stage.path);
  await pressSign(first);
  await says(first, "The payment was not accepted");
  await second.evaluate(() => window.heard);
  held.release();
  await says(second, "You did not sign");
  await toAnswer(stage);
  stage.payer = other.address;
}

/**
 * Two tabs send the same signature. One gets the answer; the other's request is lost, which
 * must change nothing.
 */
export async function answeredElsewhere(stage) {
  const wallet = new Wallet();
  const first = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const answers = holdAnswers(first);
  await answers.ready;
  await pressSign(first);
  await says(first, "Getting the answer");
  await tab(stage);
  await stage.click("Get the answer");
  await answered(stage);
  await answers.release();
  await says(first, lost);
  await tab(stage);
  await stage.sees(paidBefore);
  assert.equal(wallet.signed.length, 1);
}

/**
 * Two tabs send the same signature. The fact that one request was not charged says nothing
 * about the other request.
 */
export async function doubtElsewhere(stage) {
  const wallet = new Wallet();
  const first = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const answers = holdAnswers(first);
  await answers.ready;
  await pressSign(first);
  await says(first, "Getting the answer");
  const second = await tab(stage);
  await stage.click("Get the answer");
  await says(second, lost);
  await answers.release();
  await says(first, "Payment not confirmed yet");
  await tab(stage);
  await stage.click("Discard and pay again");
  await stage.sees("You might pay twice");
  return resend(stage, wallet);
}

/**
 * The storage is completely off. The page can still pay, and tells another tab about the
 * payment.
 */
export async function noStorageAtAll(stage) {
  const wallet = new Wallet();
  const first = await stage.open({ wallets: [wallet] });
  await first.addInitScript(noStorage);
  await first.reload();
  await toReview(stage);
  const second = await tab(stage, noStorage);
  await toReview(stage);
  await pressSign(first);
  await says(first, lost);
  await says(second, signedBefore);
  await says(first, "This browser stores nothing: keep this page open");
  await resend(stage, wallet);
  assert.equal(await second.evaluate(() => !window.dispatchEvent(new Event("beforeunload", { cancelable: true }))), false);
}

/**
 * The page ignores storage entries that another program, or another version of the page, has
 * written.
 */
export async function hostileStorage(stage) {
  const wallet = new Wallet();
  const page = await signed(stage, wallet);
  await stage.sees(lost);
  const [slot, good] = await page.evaluate(() => Object.entries(localStorage)[0]);
  assert.equal(slot, "payment " + stage.path);
  const value = JSON.parse(good);
  await page.close();
  const opened = await tab(stage);
  const junk = [
    "", "null", "[]", "{}", "not JSON", good.slice(0, -9), JSON.stringify({ ...value, header: "e30=" }), JSON.stringify({ ...value, header: 5 }),
    JSON.stringify({ ...value, payer: null }), JSON.stringify({ ...value, at: undefined }), JSON.stringify({ ...value, at: "once" }), JSON.stringify({ ...value, at: -1e300 }),
  ];
  for (const text of junk) {
    await opened.evaluate(([key, item]) => localStorage.setItem(key, item), [slot, text]);
    await opened.reload();
    await fresh(stage);
    await toReview(stage);
  }
  await opened.evaluate(([key, item]) => localStorage.setItem(key, item), [slot, good]);
  await opened.reload();
  await stage.sees(signedBefore);
  return resend(stage, wallet);
}

/**
 * The page lists the addresses that wait for an answer: at most the last five, and no address
 * that leads to another place.
 */
export async function otherAddresses(stage) {
  const page = await signed(stage);
  await stage.sees(lost);
  const at = (n) => `/v1/tools/dns?domain=${n}.example`;
  await page.evaluate(([slot, list]) => {
    const value = JSON.parse(localStorage.getItem(slot));
    for (const [key, change, age] of list) localStorage.setItem(key, JSON.stringify({ ...value, ...change, at: value.at - age }));
  }, ["payment " + stage.path, [
    ...[3, 1, 7, 5, 2, 6, 4].map((n) => ["payment " + at(n), {}, n * hour]),
    ["payment " + at("answered"), { done: Date.now() }, 1], ["payment " + at("old"), {}, 31 * 24 * hour], ["payment " + at("unpaid"), { doubt: false }, 24 * hour],
    ["payment //other.example/v1/", {}, 0], ["payment javascript:alert(1)", {}, 0], ["note /v1/tools/dns", {}, 0],
  ]]);
  await page.goto(stage.origin + stage.path + "&later=1", { waitUntil: "load" });
  await fresh(stage);
  const hrefs = await page.locator("#stage a").evaluateAll((list) => list.map((a) => a.getAttribute("href")));
  assert.deepEqual(hrefs, [stage.path, at(1), at(2), at(3), at(4)]);
  const left = await page.evaluate(() => Object.keys(localStorage));
  assert.deepEqual(["old", "unpaid"].filter((n) => left.includes("payment " + at(n))), [], "what does not matter any more is dropped");
  assert.ok(left.includes("payment " + at("answered")) && left.includes("note /v1/tools/dns"));
}
