// These scenarios are about what a wallet and its owner can do before anything is sent.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { phone } from "./stage.mjs";
import { Wallet, base } from "./wallet.mjs";

const square = (color) => `data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="${color}"/></svg>`;

/** Connects a wallet, and waits for the review. */
export async function toReview(stage, name = "Test wallet") {
  await stage.click("Connect " + name);
  await stage.sees("What you will sign");
}

/** Signs and waits for the answer. */
export async function toAnswer(stage) {
  await stage.page.getByRole("button", { name: /^Sign and pay \$/ }).click();
  await answered(stage);
}

export async function answered(stage) {
  await stage.page.locator("#result").waitFor();
  assert.equal(await stage.page.evaluate(() => document.activeElement.id), "result-title", "focus is on the heading of the answer");
}

export const answerJSON = async (stage) => JSON.parse(await stage.page.locator("#answer-json").textContent());

/** Returns what the page says will be signed, by name. */
export async function onShow(page) {
  return page.locator("[data-signs]").evaluateAll((list) => Object.fromEntries(list.map((node) => [node.dataset.signs, node.textContent])));
}

/** To get a new answer, a person must make another purchase. */
export async function payTwice(stage) {
  const wallet = new Wallet();
  await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await toAnswer(stage);
  await stage.click(/^Look up again/);
  await toReview(stage);
  await toAnswer(stage);
  await stage.sees("Paid 0.005 USDC.", "#outcome");
  assert.equal(wallet.signed.length, 2);
}

/** Takes all steps: connect, pay, show the answer, copy, download, reload and replay. */
export async function payAndReplay(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await stage.sees("Connecting shares your address with this page");
  await stage.look("connect");
  await toReview(stage);
  await stage.look("paywall");
  const shown = await onShow(page);
  await freeze(page, timers.patience, timers.copied); // the checks of the page can take longer than these timers
  const held = holdAnswers(page);
  await page.getByRole("button", { name: /^Sign and pay \$/ }).click();
  await stage.sees("Confirming the payment");
  assert.equal(await page.locator("#stage[aria-busy=true]").count(), 1, "the stage says that it is busy");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Getting the answer");
  assert.deepEqual(await page.locator("summary:visible, footer:visible").allInnerTexts(), ["Exact terms"], "nothing leads away");
  await stage.look("confirming");
  await held.release();
  await answered(stage);
  await stage.look("answer", "#result");
  const { domain, message } = wallet.signed[0];
  assert.deepEqual(shown, {
    ...message, token: domain.verifyingContract, chain: String(domain.chainId),
  }, "what was on show is what was signed");
  const first = await answerJSON(stage);
  await copyAndDownload(page, first, wallet);
  await page.reload();
  await stage.sees("You have paid for this.");
  await stage.look("replay");
  await stage.click("Get the answer again");
  await answered(stage);
  assert.match(await page.locator("#outcome").innerText(), /stored answer; nothing new was charged/);
  assert.deepEqual(await answerJSON(stage), first);
  assert.equal(wallet.signed.length, 1, "signatures");
  return { answer: first };
}

/** Delays the paid requests of a page until they are released. */
export function holdAnswers(page) {
  let open;
  const gate = new Promise((resolve) => { open = resolve; });
  const paid = (url) => url.pathname.startsWith("/v1/");
  const held = page.route(paid, async (route) => {
    if (route.request().headers()["payment-signature"]) await gate;
    await route.continue().catch(() => {}); // fails if the page has given the request up
  });
  return { ready: held, release: async () => { await held; open(); await page.unroute(paid); } };
}

/** Stops those timers of the page whose delays are listed, in ms, until thaw. */
export async function freeze(page, ...delays) {
  await page.evaluate((list) => {
    const [real, held] = [window.setTimeout, []];
    window.setTimeout = (run, delay, ...rest) =>
      list.includes(delay) ? (held.push({ run, due: performance.now() + delay }), 0) : real(run, delay, ...rest);
    window.thaw = (early) => {
      window.setTimeout = real;
      for (const { run, due } of held) early ? run() : real(run, Math.max(0, due - performance.now()));
    };
  }, delays);
}

/**
 * Lets the stopped timers go on. Each fires when it is due, because the service measures the
 * same time. With early, all fire at once; this is right if nobody else measures the time.
 */
export const thaw = (page, { early = false } = {}) => page.evaluate((at) => window.thaw(at), early);

/**
 * The delays of the page's timers, in ms: how long it waits for an answer, and how long it
 * says "Copied".
 */
export const timers = { patience: 40_000, copied: 2000 };

/**
 * Stops a page that repeats its request by itself. Then it presses the button to try again, as
 * soon as the page enables it.
 */
export async function tryAgain(page) {
  const retry = page.locator("#actions button:not([aria-disabled])").filter({ hasText: /^(Get the answer|Try again)/ });
  await page.locator("#actions button").first().waitFor();
  const stop = page.getByRole("button", { name: "Stop", exact: true });
  if ((await stop.count()) > 0) await stop.click();
  await page.evaluate(() => window.freeTicks(true));
  await retry.waitFor();
  await page.evaluate(() => window.freeTicks(false));
  await retry.click();
}

async function copyAndDownload(page, answer, wallet) {
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await page.getByRole("button", { name: "Copy answer" }).click();
  await page.locator("#said").filter({ hasText: "Copied" }).waitFor();
  assert.deepEqual(JSON.parse(await clipboard()), answer);
  await page.getByRole("button", { name: "Copy receipt" }).click();
  await page.getByRole("button", { name: "Copied" }).nth(1).waitFor();
  const receipt = JSON.parse(await clipboard());
  assert.equal(receipt.payer, wallet.address);
  assert.match(receipt.transaction, /^0x[0-9a-f]{64}$/);
  assert.match(await page.locator("#receipt").innerText(), /Question\s+A records of www\.example\.com[^]*Answered\s+\d+ \w+ 20\d\d, \d\d:\d\d UTC/);
  for (const [name, want] of [["Download answer", answer], ["Download receipt", receipt]]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
    assert.match(download.suggestedFilename(), /^dns-www\.example\.com(-receipt)?\.json$/);
    assert.deepEqual(JSON.parse(await readFile(await download.path(), "utf8")), want);
  }
  const link = page.locator("#receipt a");
  assert.equal(await link.getAttribute("href"), "https://basescan.org/tx/" + receipt.transaction);
  assert.match(await link.getAttribute("rel"), /noopener/);
}

export async function severalWallets(stage) {
  const list = [
    new Wallet({ name: "Amber", icon: square("orange") }),
    new Wallet({ name: "Blue <b>bold</b> \u202e name", icon: "https://icons.example/blue.png" }),
    new Wallet({ name: "Cedar", icon: square("green") }),
  ];
  const page = await stage.open({ wallets: list });
  await stage.sees("3 wallets found");
  assert.deepEqual(await page.locator(".wallets button").allInnerTexts(), ["Connect Amber", "Connect Blue <b>bold</b> name", "Connect Cedar"]);
  assert.equal(await page.locator(".wallets img").count(), 2, "an icon from another place is not loaded");
  await stage.look("wallets");
  await toReview(stage, "Cedar");
  stage.payer = list[2].address;
  await toAnswer(stage);
  assert.deepEqual([list[0].calls.length, list[1].calls.length, list[2].signed.length], [0, 0, 1]);
}

export async function oldWallet(stage) {
  await stage.open({ wallets: [new Wallet({ legacy: true })] });
  await toReview(stage, "Browser wallet");
  await toAnswer(stage);
}

/** The browser has no wallet at first. Then a wallet that was slow to load appears. */
export async function noWallet(stage) {
  const page = await stage.open({ wallets: [new Wallet({ silent: true })] });
  await stage.sees("No wallet found in this browser");
  await stage.look("no-wallet");
  assert.equal(await page.getByRole("link", { name: /^Open in / }).count(), 0, "a computer has no wallet's browser");
  await stage.click("Look for a wallet again");
  await stage.sees("No wallet found in this browser");
  await page.evaluate(() => window.wakeWallets());
  await toReview(stage);
}

/**
 * The browser of a phone has no wallet. The page offers to open itself in the browser of a
 * wallet app, or to copy the address.
 */
export async function phoneWithoutWallet(stage) {
  const page = await stage.open({ size: phone, touch: true });
  await stage.sees("No wallet found in this browser");
  const url = stage.origin + stage.path;
  const links = await page.getByRole("link", { name: /^Open in / }).evaluateAll((list) => list.map((a) => [a.textContent, a.href, a.rel]));
  assert.deepEqual(links, [
    ["Open in MetaMask", "https://link.metamask.io/dapp/" + url.replace("http://", ""), "noopener noreferrer"],
    ["Open in Coinbase Wallet", "https://go.cb-w.com/dapp?cb_url=" + encodeURIComponent(url), "noopener noreferrer"],
  ]);
  await stage.click("Copy the address of this page");
  await page.locator("#said").filter({ hasText: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), url);
  await stage.look("no-wallet-phone");
}

export async function connectRefused(stage) {
  const wallet = new Wallet();
  wallet.refuse("eth_requestAccounts");
  const asked = wallet.hold("eth_requestAccounts");
  const page = await stage.open({ wallets: [wallet] });
  await stage.click("Connect Test wallet");
  await stage.sees("Waiting for Test wallet");
  const busy = page.getByRole("button", { name: "Connect Test wallet" });
  assert.deepEqual([await busy.getAttribute("aria-busy"), await busy.getAttribute("aria-disabled")], ["true", "true"]);
  await busy.dispatchEvent("click"); // this must do nothing while the button is busy
  await stage.look("connecting");
  asked.release();
  await stage.sees("You did not connect");
  assert.equal(wallet.asked("eth_requestAccounts"), 1);
  await stage.look("connect-refused");
  await toReview(stage);
}

/**
 * The wallet is on the wrong chain. It first refuses to switch, then does not know the chain,
 * and then adds it.
 */
export async function wrongChain(stage) {
  const wallet = new Wallet({ chain: 1, chains: [1] });
  wallet.refuse("wallet_switchEthereumChain");
  await stage.open({ wallets: [wallet] });
  await stage.click("Connect Test wallet");
  await stage.sees("It is on chain 1. This payment is on Base, chain 8453.");
  await stage.look("wrong-chain");
  await stage.click("Switch to Base");
  await stage.sees("The chain was not switched");
  await stage.look("switch-refused");
  await stage.click("Switch to Base");
  await stage.sees("What you will sign");
  assert.equal(wallet.chain, base);
  const [, [added]] = wallet.calls.find(([method]) => method === "wallet_addEthereumChain");
  assert.deepEqual([added.chainId, added.rpcUrls, added.blockExplorerUrls], ["0x2105", ["https://mainnet.base.org"], ["https://basescan.org"]]);
  await toAnswer(stage);
}

export async function signatureRefused(stage) {
  const wallet = new Wallet();
  wallet.refuse("eth_signTypedData_v4");
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await page.getByRole("button", { name: /^Sign and pay \$/ }).click();
  await stage.sees("You did not sign");
  await stage.look("signature-refused");
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  await toAnswer(stage);
}

/** If the balance is known to be too low, the page says so, but still lets the person pay. */
export async function balance(stage) {
  const wallet = new Wallet({ balance: 4999n });
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  await stage.sees("This account holds 0.004999 USDC on Base; the payment needs 0.005.");
  await stage.look("balance-too-low");
  wallet.balance = 1_000_000_000_000_000_000_005_000n;
  await stage.click("Check the balance again");
  await stage.sees("This account holds 1000000000000000000.005 USDC.");
  assert.equal(wallet.calls.find(([m]) => m === "eth_call")[1][0].data, "0x70a08231" + wallet.address.slice(2).toLowerCase().padStart(64, "0"));
  wallet.balance = null;
  await page.reload();
  await toReview(stage);
  assert.equal(await page.locator("#problem").innerText(), "", "a balance that cannot be read is no problem");
  await toAnswer(stage);
}

/** The person changes the account and the chain in the wallet while the page is open. */
export async function changesInTheWallet(stage) {
  const [wallet, other] = [new Wallet(), new Wallet()];
  const page = await stage.open({ wallets: [wallet] });
  const from = ({ address }) => page.waitForFunction((text) => document.querySelector("[data-signs=from]:not([hidden])")?.textContent === text, address);
  await toReview(stage);
  await page.evaluate((address) => window.emitFromWallet("accountsChanged", [address]), other.address);
  await from(other);
  wallet.chain = 1;
  await page.evaluate(() => window.emitFromWallet("chainChanged", "0x1"));
  await stage.sees("The wallet is on another chain");
  wallet.chain = base;
  await page.evaluate(() => window.emitFromWallet("chainChanged", "0x2105"));
  await from(other);
  await page.evaluate(() => window.emitFromWallet("accountsChanged", []));
  await stage.sees("Connecting shares your address with this page");
  await toReview(stage);
  await from(wallet);
}

/**
 * An authorization that was shown for too long is replaced by a new one before it is signed.
 */
export async function oldAuthorization(stage) {
  const wallet = new Wallet();
  const page = await stage.open({ wallets: [wallet] });
  await toReview(stage);
  const before = await onShow(page);
  await page.evaluate(() => { const now = Date.now; Date.now = () => now() + 200_000; });
  await page.getByRole("button", { name: /^Sign and pay \$/ }).click();
  await stage.sees("We refreshed the expiry");
  const after = await onShow(page);
  assert.notEqual(after.nonce, before.nonce);
  assert.ok(Number(after.validBefore) > Number(before.validBefore));
  assert.equal(wallet.signed.length, 0);
}
