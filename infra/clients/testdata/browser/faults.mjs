// These scenarios are about what happens after a signature is sent. The Go test that runs a
// scenario decides what the service answers and what is lost on the way. The scenario checks
// how the page reacts.

import assert from "node:assert/strict";
import { Wallet } from "./wallet.mjs";
import { answered, answerJSON, freeze, holdAnswers, thaw, timers, toAnswer, toReview, tryAgain } from "./wallets.mjs";

const signAndPay = (stage) => stage.page.getByRole("button", { name: /^Sign and pay \$/ }).click();
const kept = (stage) => stage.page.evaluate(() => localStorage.length);

/**
 * After a fault, the same signature is sent again, by the person or by the page itself
 * (alone).
 */
export async function sameSignature(stage, { says, look = "", alone = false, lost = "" }) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await signAndPay(stage);
  await stage.sees(says);
  assert.equal(await kept(stage), 1, "the signature is kept");
  if (look) await stage.look(look);
  if (lost === "reload") await page.reload();
  if (alone) {
    await stage.sees("Trying again in ");
    assert.deepEqual(await page.locator("#actions button").allInnerTexts(), ["Stop"]);
    await page.evaluate(() => window.freeTicks(true));
  } else {
    if (look && (await page.getByRole("button", { name: "Stop" }).count()) > 0) {
      await stage.click("Stop");
      await stage.look(look + "-stopped", "top", false);
    }
    await tryAgain(page);
  }
  await answered(stage);
  assert.equal(wallet.signed.length, 1, "signatures");
  return { answer: await answerJSON(stage) };
}

/** The page is reloaded while the payment is being processed. */
export async function reloadWhileSending(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const held = holdAnswers(page);
  await signAndPay(stage);
  await stage.sees("Getting the answer");
  await page.reload();
  await held.release();
  await stage.sees("You have signed a payment for this.");
  await stage.look("signed-before");
  await stage.click("Get the answer");
  await answered(stage);
  assert.equal(wallet.signed.length, 1);
}

/** If there is no answer at all, the page gives up waiting and keeps the signature. */
export async function silence(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await freeze(page, timers.patience);
  const held = holdAnswers(page);
  await signAndPay(stage);
  await stage.sees("Getting the answer");
  await thaw(page, { early: true });
  await stage.sees("Connection lost");
  await page.reload(); // the reloaded page has the usual timers again
  await held.release();
  await stage.click("Get the answer");
  await answered(stage);
  assert.equal(wallet.signed.length, 1);
}

/** The service answers 402 with a reason. After that, it accepts another signature. */
export async function refusedThenPaid(stage, { says }) {
  const wallet = new Wallet();
  await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await signAndPay(stage);
  await stage.sees("The payment was not accepted");
  await stage.sees(says);
  await stage.look("not-accepted");
  assert.equal(await kept(stage), 0, "a refused signature is dropped");
  await stage.click("Sign another payment");
  await stage.sees("What you will sign");
  await toAnswer(stage);
  assert.equal(wallet.signed.length, 2);
  assert.notEqual(wallet.signed[0].message.nonce, wallet.signed[1].message.nonce);
}

/**
 * Some parts of a bundle's answer are owed. The page says so, and requests them again without
 * another charge.
 */
export async function stillOwed(stage) {
  const wallet = new Wallet();
  await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await signAndPay(stage);
  await answered(stage);
  await stage.sees("Still owed: ssl, headers.", "#outcome");
  await stage.click("Get the rest, free of charge");
  await stage.sees("nothing new was charged", "#outcome");
  assert.doesNotMatch(await stage.page.locator("#outcome").innerText(), /owed/);
  assert.equal(wallet.signed.length, 1);
}

/**
 * The service would answer this request with 400. The page shows no wallet, because there is
 * nothing to sign for.
 */
export async function badParameter(stage, { says }) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await stage.sees("We can’t look that up", ".first");
  await stage.sees(says, ".box.warn");
  assert.equal(await page.getByRole("button", { name: /^(Connect|Sign) / }).count(), 0);
  await stage.look("bad-parameter");
  assert.equal(await kept(stage), 0);
}

/**
 * The answer is an error, with a receipt. After a reload, the page gets the same answer again.
 */
export async function chargedError(stage, { says, look = "", again = true, contact = "" }) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await toReview(stage);
  if (contact) {
    await page.evaluate((href) => {
      const link = Object.assign(document.createElement("a"), { href, textContent: "Contact" });
      const item = Object.assign(document.createElement("li"), { id: "contact" });
      item.append(link);
      document.querySelector("footer ul").append(item);
    }, contact);
  }
  await signAndPay(stage);
  await answered(stage);
  await stage.sees(says, "#outcome");
  assert.match(await page.locator("#receipt").innerText(), /0x[0-9a-f]{64}/);
  assert.deepEqual(await page.locator("#outcome a:not([href='#paid'])").evaluateAll((list) => list.map((a) => a.href)), contact ? [contact] : []);
  if (look) await stage.look(look, "#result");
  const body = await answerJSON(stage);
  if (again) {
    await page.reload();
    await stage.click("Get the answer again");
    await answered(stage);
    assert.deepEqual(await answerJSON(stage), body);
    assert.match(await page.locator("#outcome").innerText(), /nothing new was charged/);
  }
  return { answer: body };
}
