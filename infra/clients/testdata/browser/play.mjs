// These scenarios are about play money, which a server signs for visitors who have no wallet.

import assert from "node:assert/strict";
import { Wallet } from "./wallet.mjs";
import { answered, answerJSON, toAnswer, toReview } from "./wallets.mjs";

const note = "This server takes play money. No real money moves.";

/** Returns the steps of a payment. The first one must be the current step. */
async function steps(page) {
  assert.equal(await page.locator("#stages li").first().getAttribute("aria-current"), "step");
  return page.locator("#stages li").allInnerTexts();
}

/**
 * A visitor without a wallet presses one button. The page shows the answer and its receipt,
 * and later the same answer without another charge.
 */
export async function playMoney(stage) {
  const page = await stage.open({});
  assert.equal((await page.locator(".play").innerText()).trim(), note);
  await page.getByRole("button", { name: "Pay with play money" }).waitFor();
  assert.equal(await page.locator("#stage button, #actions button").count(), 1);
  assert.deepEqual(await steps(page), ["Sign", "Answer"], "there is nothing to connect");
  await stage.look("play-money");
  await stage.click("Pay with play money");
  await answered(stage);
  await stage.look("play-money-answer", "#result");
  await page.locator("#receipt").filter({ hasText: "signed this answer." }).waitFor();
  const answer = await answerJSON(stage);
  await page.reload();
  await stage.sees("You have paid for this");
  await stage.click("Get the answer again");
  await answered(stage);
  assert.match(await page.locator("#outcome").innerText(), /nothing new was charged/);
  return { answer };
}

/** The documentation page says at its top that the server takes play money. */
export async function playMoneyDocs(stage) {
  const page = await stage.open({});
  assert.equal((await page.locator(".play").innerText()).trim(), note);
  await stage.look("play-money-docs");
}

/**
 * The server does not answer the request to sign. The page says what to type, and keeps
 * nothing.
 */
export async function playMoneyGone(stage) {
  const page = await stage.open({});
  await page.route("**/play-wallet/sign", (route) => route.abort());
  await stage.click("Pay with play money");
  await stage.sees(`make pay URL='${stage.origin}${stage.path}'`);
  await stage.look("play-money-gone");
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  await page.unroute("**/play-wallet/sign");
  await stage.click("Pay with play money");
  await answered(stage);
}

/** A visitor who has a wallet may use it. */
export async function playMoneyOrWallet(stage) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await page.getByRole("button", { name: "Connect Test wallet" }).waitFor();
  assert.deepEqual(await page.locator("#stage button, #actions button").allInnerTexts(), ["Pay with play money", "Connect Test wallet"]);
  assert.deepEqual(await steps(page), ["Connect", "Sign", "Answer"]);
  await stage.look("play-money-or-wallet");
  await toReview(stage);
  await toAnswer(stage);
}
