// These scenarios are about the paywall as a page: hostile links, the content security policy,
// the keyboard, and a browser without JavaScript.

import assert from "node:assert/strict";
import { narrow, outOfSight, phone, wide } from "./stage.mjs";
import { Wallet } from "./wallet.mjs";
import { answered, answerJSON, toAnswer, toReview } from "./wallets.mjs";

/**
 * The author of a link can write anything into its query. The page must not show a value that
 * is not a name.
 */
export async function hostile(stage, { values }) {
  const page = await stage.open({ wallets: [new Wallet()] });
  for (const value of values) {
    await page.goto(stage.origin + stage.path + "?domain=" + encodeURIComponent(value) + "&type=" + encodeURIComponent(value), { waitUntil: "load" });
    await page.locator(".box.warn").waitFor();
    assert.equal(await page.locator("h1 bdi").count(), 0, JSON.stringify(value));
    assert.equal(await page.getByRole("button", { name: /^(Connect|Sign) / }).count(), 0, JSON.stringify(value));
    assert.equal(await page.evaluate(() => window.owned ?? "safe"), "safe", JSON.stringify(value));
    assert.equal(await page.locator("script").count(), 1, JSON.stringify(value));
    const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(width <= 0, JSON.stringify(value) + " makes the page wider");
  }
  await stage.look("");
}

/** A wallet with a hostile name is used for a whole payment. */
export async function hostilePaid(stage) {
  const page = await stage.open({ wallets: [new Wallet({ name: "<img src=x onerror=owned=1>" })] });
  await toReview(stage, "<img src=x onerror=owned=1>");
  await toAnswer(stage);
  assert.equal(await page.locator("#wallet :is(script, img)").count(), 0);
  assert.equal(await page.evaluate(() => window.owned ?? "safe"), "safe");
}

/** Values that third parties put into an answer are shown as text. */
export async function hostileAnswer(stage) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await toReview(stage);
  await toAnswer(stage);
  assert.match(JSON.stringify(await answerJSON(stage)), /<script>.*\u202ereversed/);
  const shown = await page.locator("#answer-json").textContent();
  assert.match(shown, /\\u202ereversed\\u202c/, "what reorders text is shown as what it is");
  assert.doesNotMatch(shown, /\p{Cf}/u);
  assert.equal(await page.locator("#result script").count(), 0);
}

export async function policy(stage) {
  const nonces = new Set();
  for (let i = 0; i < 2; i++) {
    const page = await stage.open({ wallets: [] });
    assert.doesNotMatch(stage.policy, /unsafe|\*|https?:/);
    const nonce = /script-src 'nonce-([A-Za-z0-9]{22,})'(;|$)/.exec(stage.policy)[1];
    assert.equal(await page.locator("script").evaluate((node) => node.nonce), nonce);
    nonces.add(nonce);
    // The policy blocks a script that was not part of the page when it was sent.
    const ran = await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.foreign = 1";
      document.body.append(script);
      return window.foreign ?? 0;
    });
    assert.equal(ran, 0);
    await page.waitForFunction(() => window.stoppedByPolicy.length > 0);
    await page.evaluate(() => { window.stoppedByPolicy = []; });
    stage.faults = stage.faults.filter((f) => !f.includes("inline script"));
  }
  assert.equal(nonces.size, 2, "a nonce is new for each answer");
}

/** Presses Tab until a control with the given name has the focus. */
async function tabTo(page, name) {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(() => {
      const node = document.activeElement;
      const style = getComputedStyle(node);
      return { text: node.textContent.trim() || node.getAttribute("name"), ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
    });
    assert.ok(found.ring || found.text === "Hostfacts" || found.text.length > 300, `the focus shows on ${found.text.slice(0, 40)}`);
    if (found.text.startsWith(name)) return;
  }
  assert.fail("Tab does not reach " + name);
}

/** Pays with the keyboard alone, beginning at an address without a query. */
export async function keyboard(stage) {
  const page = await stage.open({ wallets: [new Wallet({ chain: 1 })] });
  assert.equal(await page.evaluate(() => document.activeElement.name), "domain", "the form has the focus");
  await page.keyboard.type("www.example.com");
  await page.keyboard.press("Enter");
  await page.waitForURL(/domain=www\.example\.com/);
  await page.locator("#wallet").waitFor();
  await tabTo(page, "Connect Test wallet");
  await page.keyboard.press("Enter");
  // From here on, the page moves the focus to the next thing to do.
  await stage.sees("The wallet is on another chain");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Switch to Base");
  await page.keyboard.press("Enter");
  await stage.sees("What you will sign");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "What you will sign");
  await tabTo(page, "Sign and pay");
  if (stage.screenshots) await stage.shoot("focus-light.png", "top");
  await page.keyboard.press("Space");
  await answered(stage);
  await tabTo(page, "Copy answer");
}

/**
 * The address has no query. There is nothing to pay for yet, but the form leads to a page with
 * a price.
 */
export async function bare(stage) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await stage.sees("Which domain?", ".first");
  assert.equal(await page.evaluate(() => document.activeElement.name), "domain", "the form has the focus");
  assert.ok(await page.locator("#wallet").isHidden());
  await stage.look("no-domain");
  await page.getByLabel("Domain", { exact: true }).fill("www.example.com");
  await page.getByLabel("Record type").selectOption("AAAA");
  await stage.click("Continue");
  await page.waitForURL((url) => url.searchParams.get("domain") === "www.example.com" && url.searchParams.get("type") === "AAAA");
  await toReview(stage);
  await toAnswer(stage);
  return { answer: await answerJSON(stage) };
}

/** Without JavaScript the page is complete, and says how to pay from code. */
export async function withoutScript(stage) {
  const page = await stage.open({ script: false });
  const text = await page.locator("main").textContent();
  for (const want of ["$0.005 in USDC on Base", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "Paying on this page needs JavaScript", "curl alone cannot pay", "PAYMENT-SIGNATURE", "Exact terms", "www.example.com"]) {
    assert.ok(text.includes(want), want);
  }
  for (const name of ["#wallet", "#result", ".copy >> nth=0"]) assert.ok(await page.locator(name).isHidden(), name);
  if (stage.screenshots) await stage.shoot("no-script-light.png", "top");
  await page.getByText("Look up something else").click();
  await page.getByLabel("Domain", { exact: true }).fill("txt.example.com");
  await stage.click("Continue");
  await page.waitForURL(/domain=txt\.example\.com/);
}

/** Every operation's page opens, is accessible, and offers to pay with the wallet. */
export async function everyPage(stage, { paths }) {
  for (const path of paths) {
    const page = await stage.open({ path, wallets: [new Wallet()] });
    await stage.sees("Connecting shares your address with this page");
    await stage.look("");
    for (const context of stage.contexts.splice(0)) {
      const stopped = await page.evaluate(() => window.stoppedByPolicy);
      assert.deepEqual(stopped, [], path);
      await context.close();
    }
  }
}

/**
 * Shows an answer of every operation. The answers are the examples of the catalog; the
 * service's own answers are not used.
 */
export async function everyAnswer(stage) {
  const { tools } = await (await fetch(stage.origin + "/v1/catalog")).json();
  for (const { path, example_response: json } of tools) {
    const page = await stage.open({ path: path + "?domain=www.example.com", wallets: [new Wallet()] });
    await page.route((url) => url.pathname === path, (route) => route.fulfill({ json }));
    await toReview(stage);
    await toAnswer(stage);
    for (const size of [wide, phone]) {
      await page.setViewportSize(size);
      const below = await page.evaluate(() => ["#result-title", "#facts tr", innerWidth > 1000 ? "#receipt" : "#outcome a"].filter((name) => {
        const { top, bottom } = document.querySelector(name).getBoundingClientRect();
        return top < 0 || bottom > innerHeight;
      }));
      assert.deepEqual(below, [], `${path} at ${size.width} px: not in view`);
    }
    await stage.look("answer-" + path.split("/").pop(), "page");
    await stage.contexts.pop().close();
  }
}

/**
 * This operation takes no parameters. After the answer, the page offers to pay again instead
 * of to look something up.
 */
export async function payHere(stage) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await toReview(stage);
  await toAnswer(stage);
  assert.equal(await page.locator("#next").innerText(), "Pay again ($0.001)");
  return { answer: await answerJSON(stage) };
}

/**
 * If a person has pressed a button and scrolled away, the page scrolls back at its next state:
 * to all of that state or, if not all of it fits, to its button. A person who has pressed no
 * button is never scrolled.
 */
export async function scrollsToTheButton(stage) {
  const rattle = "The wallet's reason, which takes a while to tell. ".repeat(5);
  for (const size of [wide, narrow]) {
    let odd = false;
    const wallet = new Wallet({ bend: (method, result) => { if (odd && method === "eth_signTypedData_v4") throw rattle; return result; } });
    const late = new Wallet({ name: "Late wallet", silent: true });
    const page = await stage.open({ wallets: [wallet, late], size });
    const foot = () => page.evaluate(() => document.querySelector("footer").getBoundingClientRect().top);
    const away = () => page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await stage.sees("Connecting shares your address with this page");
    await away();
    const read = await foot();
    await page.evaluate(() => window.wakeWallets());
    await stage.sees("2 wallets found");
    assert.ok(Math.abs((await foot()) - read) < 2, "a reader was scrolled");
    await toReview(stage);
    await away();
    await page.evaluate((address) => window.emitFromWallet("accountsChanged", [address.toLowerCase()]), late.address);
    await page.waitForFunction((address) => document.querySelector("[data-signs=from]").textContent === address, late.address.toLowerCase());
    for (let frame = 0; frame < 600 && (await page.evaluate(outOfSight)).length > 0; frame++) await page.evaluate(() => new Promise(requestAnimationFrame));
    assert.deepEqual(await page.evaluate(outOfSight), [], "not in view after another account");
    await page.evaluate((address) => window.emitFromWallet("accountsChanged", [address]), wallet.address);
    odd = true;
    await page.getByRole("button", { name: /^Sign and pay/ }).click();
    await stage.sees("The wallet reported an error");
    await stage.sees("This account holds");
    assert.deepEqual((await page.evaluate(outOfSight)).filter((line) => line.startsWith("the button")), []);
    await page.context().close();
    stage.contexts.pop();
  }
}

/** A name in another script is shown in the form in which it is looked up, as an A-label. */
export async function internationalised(stage) {
  const page = await stage.open({ path: stage.path + "?domain=" + encodeURIComponent("b\u00fccher.example.com"), wallets: [new Wallet()] });
  await stage.sees("Connecting shares your address with this page");
  assert.equal(await page.locator("h1").innerText(), "A records of xn--bcher-kva.example.com");
  assert.doesNotMatch(await page.locator("body").innerText(), /\u00fc/);
  await stage.look("");
}

/**
 * The form keeps what was typed, even if it was wrong. It also has the values of parameters
 * whose names were misspelt.
 */
export async function keepsWhatWasTyped(stage) {
  const page = await stage.open({ path: stage.path + "?domain=exa+mple.com&type=MX", wallets: [new Wallet()] });
  const typed = () => Promise.all([page.getByLabel("Domain").inputValue(), page.getByLabel("Record type").inputValue()]);
  await page.locator(".box.warn").filter({ hasText: "which no domain name has" }).waitFor();
  assert.deepEqual(await typed(), ["exa mple.com", "MX"]);
  await stage.look("what-was-typed");
  await page.goto(stage.origin + stage.path + "?domian=www.example.com&tpye=AAAA", { waitUntil: "load" });
  await page.locator(".box.warn").filter({ hasText: "it is called domain. The form below has the value that you sent." }).waitFor();
  assert.deepEqual(await typed(), ["www.example.com", "AAAA"]);
  await page.locator("form.ask").getByRole("button").click();
  await page.waitForURL((url) => url.searchParams.get("domain") === "www.example.com" && url.searchParams.get("type") === "AAAA");
  await page.getByRole("button", { name: /^Connect / }).waitFor();
}

/**
 * The guard refuses these names. The page shows the reason and a form for another name, but no
 * wallet.
 */
export async function refusedNames(stage, { names }) {
  for (const name of names) {
    const page = await stage.open({ path: stage.path + "?domain=" + encodeURIComponent(name), wallets: [new Wallet()] });
    await stage.sees("We can’t look that up", ".first");
    const why = await page.locator(".box.warn").innerText();
    assert.ok(why.length > 10, `${name}: no reason`);
    assert.ok(await page.locator("#wallet").isHidden(), `${name}: a wallet`);
    assert.equal(await page.getByRole("button", { name: /^(Connect|Sign) / }).count(), 0, name);
    await stage.look("", "top", name === names[0]);
    await stage.contexts.pop().close();
  }
}
