// In these scenarios something happens between a signature and its answer, and nobody may pay
// twice: there are two tabs, a copy of the page from the history, a wrong clock, a storage
// that is off, and wallets that do not behave as usual.

import assert from "node:assert/strict";
import { Wallet } from "./wallet.mjs";
import { answered, answerJSON, toAnswer, toReview, tryAgain } from "./wallets.mjs";

export const pressSign = (page) => page.getByRole("button", { name: /^Sign and pay \$/ }).click();
export const says = (page, text) => page.locator("#wallet").filter({ hasText: text }).waitFor();
export const kept = (page) => page.evaluate(() => localStorage.length);

/** Opens the page and signs. The scenario decides what the service answers. */
export async function signed(stage, wallet = new Wallet(), options = {}) {
  const page = await stage.open({ wallets: [wallet], ...options });
  await toReview(stage);
  await pressSign(page);
  return page;
}

/** Sends the kept signature again, and waits for the answer. */
export async function resend(stage, wallet) {
  await tryAgain(stage.page);
  await answered(stage);
  if (wallet) assert.equal(wallet.signed.length, 1, "signatures");
  return { answer: await answerJSON(stage) };
}

/** Opens another tab of the same browser. The function before runs in the new page first. */
export async function tab(stage, before = () => {}, argument = null) {
  const page = await stage.contexts.at(-1).newPage();
  stage.watch(page);
  await page.addInitScript(before, argument);
  await page.goto(stage.origin + stage.path, { waitUntil: "load" });
  stage.page = page;
  return page;
}

/**
 * A wallet takes long to answer which chain it is on. The answer comes while the wallet is
 * asked to sign, and must not make the page show the review again.
 */
export async function eventWhileSigning(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const chain = wallet.hold("eth_chainId");
  const asked = wallet.asked("eth_chainId");
  await page.evaluate(() => window.emitFromWallet("chainChanged", "0x2105"));
  while (wallet.asked("eth_chainId") === asked) await page.evaluate(() => 0);
  const signature = wallet.hold("eth_signTypedData_v4");
  await pressSign(page);
  await stage.sees("Waiting for Test wallet");
  chain.release();
  // This request is answered after the one above, so that answer has arrived.
  await page.evaluate(() => window.walletRequest(0, "eth_chainId", []));
  await page.evaluate(() => new Promise((done) => setTimeout(done)));
  assert.equal(await page.getByRole("button", { name: /^Sign and pay/ }).getAttribute("aria-disabled"), "true", "it can be signed twice");
  signature.release();
  await answered(stage);
  assert.equal(wallet.signed.length, 1);
}

/**
 * The wallet reports two changes in a row. What it answers after the second one must count.
 */
export async function changesInARow(stage) {
  const says = [];
  const wallet = new Wallet({ bend: (method, result) => method === "eth_chainId" && wallet.asked(method) > 1 ? new Promise((resolve) => says.push(resolve)) : result });
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await page.evaluate(() => { window.emitFromWallet("chainChanged", "0x1"); window.emitFromWallet("chainChanged", "0x2105"); });
  while (says.length < 2) await page.evaluate(() => 0);
  const before = await page.locator("[data-signs=nonce]").textContent();
  says[0]("0x1");
  await page.evaluate(() => 0);
  says[1]("0x2105");
  await page.waitForFunction((text) => document.querySelector("[data-signs=nonce]").textContent !== text && document.querySelector("#stage h3"), before);
}

/**
 * The person changes the chain while the wallet is asked to sign. The page must say what is
 * wrong, and offer a way out.
 */
export async function chainWhileSigning(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const signature = wallet.hold("eth_signTypedData_v4");
  await pressSign(page);
  await stage.sees("Waiting for Test wallet");
  wallet.chain = 1;
  await page.evaluate(() => window.emitFromWallet("chainChanged", "0x1"));
  signature.release();
  await stage.sees("The wallet is on another chain");
  await stage.click("Switch to Base");
  await stage.sees("What you will sign");
  await toAnswer(stage);
}

/** The page is a copy from before the signature, as a browser's history keeps it. */
export async function historyCopy(stage, { by }) {
  const wallet = new Wallet();
  const first = await signed(stage, wallet);
  await stage.sees("Connection lost");
  const stored = await first.evaluate(() => {
    const list = Object.entries(localStorage);
    localStorage.clear();
    return list;
  });
  await first.close();
  const page = await tab(stage);
  await toReview(stage);
  await page.evaluate((list) => { for (const [key, value] of list) localStorage.setItem(key, value); }, stored);
  if (by === "pageshow") await page.evaluate(() => window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  else await pressSign(page);
  await stage.sees("You have signed a payment for this.");
  return resend(stage, wallet);
}

/**
 * Two tabs have the same address, and the wallet of one is asked to sign. A third tab is
 * opened later.
 */
export async function tabs(stage) {
  const [wallet, other] = [new Wallet(), new Wallet({ name: "Other wallet" })];
  const held = other.hold("eth_signTypedData_v4");
  const first = await stage.open({ wallets: [wallet, other] });
  await toReview(stage);
  const second = await tab(stage);
  await toReview(stage, "Other wallet");
  await pressSign(second);
  await says(second, "Waiting for Other wallet");
  const idle = await tab(stage);
  await toReview(stage);
  await pressSign(first);
  await says(first, "Connection lost");
  await says(idle, "You have signed a payment for this.");
  held.release();
  await says(second, "Another tab was faster: what you just signed was not sent. You have signed a payment for this.");
  await tab(stage);
  await stage.sees("You have signed a payment for this.");
  await resend(stage, wallet);
}

/** After each of these answers, it is unclear whether the payment was made. */
export async function inDoubt(stage, { steps }) {
  const wallet = new Wallet();
  const page = await signed(stage, wallet);
  for (const [i, text] of steps.entries()) {
    await stage.sees(text);
    assert.equal(await kept(page), 1, "the signature is kept after " + text);
    assert.equal(await page.getByRole("button", { name: "Sign another payment" }).count(), 0);
    if (i < steps.length - 1) await tryAgain(page);
  }
  await page.reload();
  await stage.click("Discard and pay again");
  await stage.sees("You might pay twice");
  await stage.look("second-payment");
  assert.equal(await kept(page), 1);
  return resend(stage, wallet);
}

/**
 * The last of these answers makes clear that no money moved, so the page drops the signature.
 */
export async function noDoubt(stage, { steps }) {
  const page = await signed(stage);
  for (const [i, text] of steps.entries()) {
    await stage.sees(text);
    if (i < steps.length - 1) await tryAgain(page);
  }
  await stage.sees("This request was not charged.");
  assert.equal(await kept(page), 0);
  await stage.click("Sign another payment");
  await stage.sees("What you will sign");
}

/**
 * The service has said that the payment was not made. The page forgets it at once, without a
 * warning.
 */
export async function forgetUnpaid(stage) {
  const page = await signed(stage);
  await stage.sees("Not charged yet");
  await page.reload();
  await stage.click("Discard and pay again");
  await stage.sees("Connecting shares your address with this page");
  assert.equal(await kept(page), 0);
}

/**
 * The person has signed for another address and has no answer yet. The page has a link back to
 * that address.
 */
export async function otherAddress(stage) {
  const wallet = new Wallet();
  const page = await signed(stage, wallet);
  await stage.sees("Connection lost");
  await page.getByText("Look up something else").click();
  await page.getByLabel("Record type").selectOption("MX");
  await stage.click("Continue");
  await page.waitForURL(/type=MX/);
  await stage.sees("You signed for something else and have no answer yet");
  await stage.look("other-address");
  await page.locator("#stage a").click();
  await stage.sees("You have signed a payment for this.");
  await resend(stage, wallet);
  await page.goto(stage.origin + stage.path + "&later=1", { waitUntil: "load" });
  await stage.sees("Connecting shares your address with this page");
  assert.equal(await page.locator("#stage a").count(), 0, "an answer ends it");
}

/**
 * The browser stores nothing. The page says so, and the browser asks before the person leaves
 * the page.
 */
export async function storageOff(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await page.evaluate(() => { Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); }; });
  const held = () => page.evaluate(() => !window.dispatchEvent(new Event("beforeunload", { cancelable: true })));
  await toReview(stage);
  assert.equal(await held(), false);
  await pressSign(page);
  await stage.sees("Connection lost");
  await stage.sees("This browser stores nothing: keep this page open");
  assert.equal(await held(), true, "the page is left without a word");
  await resend(stage, wallet);
  assert.equal(await held(), false);
}

/**
 * The service is deployed with other terms after the page was loaded, and before the person
 * signs.
 */
export async function newTerms(stage) {
  await signed(stage);
  await stage.sees("The terms have changed: reload the page");
  await stage.click("Reload the page");
  await stage.sees("Connecting shares your address with this page");
}

/**
 * The price changes between the signature and its answer. The receipt shows the price that was
 * paid.
 */
export async function newPrice(stage) {
  const wallet = new Wallet();
  const page = await signed(stage, wallet);
  await stage.sees("Connection lost");
  await page.route((url) => url.pathname.startsWith("/v1/"), async (route) => {
    if (route.request().resourceType() !== "document") return route.continue();
    const response = await route.fetch();
    const body = (await response.text()).replace(/data-offer='([^']*)'/, (_, text) => {
      const offer = JSON.parse(text); // the JSON in the attribute may be escaped, but not in the part that is changed
      offer.accepts[0].amount = "9000";
      return `data-offer='${JSON.stringify(offer)}'`;
    });
    return route.fulfill({ response, body });
  });
  await page.reload();
  await stage.sees("You have signed a payment for this.");
  await resend(stage, wallet);
  assert.match(await page.locator("#outcome").innerText(), /Paid 0\.005 USDC/);
  assert.match(await page.locator("#receipt").innerText(), /0\.005 USDC \(5000 atomic units\)/);
}

/**
 * The device's clock is ten minutes off. The page says so, and corrects the time in the next
 * signature.
 */
export async function clockOff(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await page.evaluate(() => { const now = Date.now; Date.now = () => now() - 600_000; });
  await toReview(stage);
  await pressSign(page);
  await stage.sees("The payment was not accepted");
  assert.match(await page.locator("#problem").innerText(), /The clock of this device is \d{3} s slow/);
  await stage.click("Sign another payment");
  await stage.sees("What you will sign");
  await toAnswer(stage);
  assert.equal(wallet.signed.length, 2);
}

const compact = (signature) => {
  const odd = signature.endsWith("1c");
  const top = parseInt(signature.slice(66, 68), 16) + (odd ? 128 : 0);
  return signature.slice(0, 66) + top.toString(16).padStart(2, "0") + signature.slice(68, 130);
};
const low = (signature) => signature.slice(0, -2) + (signature.endsWith("1c") ? "01" : "00");

/**
 * This wallet ignores conventions. Its signatures are in the form that short names, made from
 * signatures that end with the byte last.
 */
export async function oddWallet(stage, { short, last }) {
  let locked = true;
  let long = true;
  const wallet = new Wallet({
    bend: (method, result) => {
      switch (method) {
        case "eth_requestAccounts":
          if (!locked) return [result[0].toLowerCase()];
          locked = false;
          throw "locked, says the wallet";
        case "eth_chainId": return Number(result);
        case "eth_signTypedData_v4":
          if (!long && !result.endsWith(last)) throw { code: "4001", message: "not this one" };
          if (!long) return short === "compact" ? compact(result) : low(result);
          long = false;
          return "0x" + "ab".repeat(4096);
      }
      return result;
    },
  });
  const page = await stage.open({ wallets: [wallet] });
  await stage.click("Connect Test wallet");
  await stage.sees("locked, says the wallet");
  await toReview(stage);
  await pressSign(page);
  await stage.sees("too long to be sent");
  assert.equal(await kept(page), 0);
  while (await page.locator("#result").isHidden()) {
    await pressSign(page);
    await page.locator("#result:not([hidden]), #problem:not(:empty)").first().waitFor();
  }
  await answered(stage);
}
