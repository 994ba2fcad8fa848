// These scenarios are about the documentation page, and about the page for an address at which
// there is nothing.

import assert from "node:assert/strict";
import { narrow, wide, widths } from "./stage.mjs";
import { Wallet } from "./wallet.mjs";

const sizes = [wide, narrow];

export async function documentation(stage) {
  const page = await stage.open({});
  assert.doesNotMatch(stage.policy, /unsafe|\*|https?:/);
  await stage.look("docs-top");
  if (stage.screenshots) { // the same state at other places of the page
    await stage.look("docs", "#dns", false);
    for (const id of ["try", "payment-signature", "limits", "errors", "receipts"]) await stage.look("docs-" + id, "#" + id, false);
  }
  const anchors = await page.locator("a[href]").evaluateAll((list) => list.filter((a) => a.pathname === location.pathname && a.origin === location.origin && a.hash).map((a) => a.hash));
  assert.ok(anchors.length > 10, `${anchors.length} links within the page`);
  const lost = await page.evaluate((list) => list.filter((hash) => !document.getElementById(decodeURIComponent(hash.slice(1)))), anchors);
  assert.deepEqual(lost, [], "links within the page that lead nowhere");
  const paths = await page.locator("a[href]").evaluateAll((list) => [...new Set(list.filter((a) => a.origin === location.origin && a.pathname !== location.pathname).map((a) => a.pathname))]);
  for (const path of paths) {
    const answer = await page.request.get(stage.origin + path, { headers: { Accept: "application/json" } });
    assert.ok([200, 402].includes(answer.status()), `${path} answers ${answer.status()}`);
  }
  await copies(page);
}

/**
 * Nothing may move after it is painted, at any width. What a script adds must have its place
 * reserved from the beginning. If the page arrives in two pieces, nothing that is painted
 * early may move when the rest arrives.
 */
export async function nothingMoves(stage, { paths }) {
  for (const path of paths) {
    await Promise.all(widths.map(({ width }) => holdsStill(stage, { path, width })));
  }
  for (const stop of ["payment_in_progress", "facilitator_misconfigured"]) {
    for (const width of [768, 1280]) await holdsStill(stage, { path: "/docs#errors", width, stop: `<code>${stop}</code></th>` });
  }
}

async function holdsStill(stage, { path, width, stop }) {
  const page = await stage.open({ path, size: { width, height: 800 }, wallets: [new Wallet()], stop });
  await page.waitForTimeout(1000); // the page looks for wallets during the first half second
  const shifts = await page.evaluate(() => new Promise((done) => {
    new PerformanceObserver((list) => done(list.getEntries().map((e) => e.value))).observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done([]), 200);
  }));
  const total = shifts.reduce((a, v) => a + v, 0);
  assert.ok(total <= 0.02, `${path} at ${width}${stop ? ", in pieces" : ""}: the layout shifts by ${total}`);
  await page.context().close();
}

/**
 * The number of pages that follow links at the same time. They share the links, because each
 * jump waits for some forty frames.
 */
const readers = 4;

/**
 * A link within the page jumps to its place at once, without smooth scrolling. Time is
 * measured in the page's own frames: two frames after the click, which take far less than 100
 * ms, the place must be where it stays.
 */
export async function docsAnchors(stage) {
  await Promise.all(sizes.flatMap((size) => Array.from({ length: readers }, async (_, reader) => {
    const page = await stage.open({ size, motion: true });
    const hashes = await page.locator("nav a").evaluateAll((list) => list.map((a) => a.hash));
    const followed = [...hashes, "#retries", "#signed", "#errors", "#prices"].filter((_, i) => i % readers === reader);
    assert.ok(followed.length > 2, `${followed.length} links`);
    for (const hash of followed) {
      const [soon, late] = await page.evaluate(jump, hash);
      assert.ok(soon >= 0 && soon < size.height / 2, `${hash} is at ${soon} px of ${size.height}`);
      assert.ok(Math.abs(late - soon) < 2, `${hash} went on from ${soon} to ${late} px`);
    }
    if (reader > 0) return;
    // A link from outside the page opens the folds and tabs that its place is in.
    await page.goto(stage.origin + stage.path + "#retries", { waitUntil: "load" });
    await page.locator("#code-retries").waitFor();
    assert.equal(await page.getByRole("tab", { name: "TypeScript" }).getAttribute("aria-selected"), "true");
  })));
}

/**
 * Follows a link to hash from the other end of the page. It returns the position of the place
 * two frames later, and the position long after that.
 */
async function jump(hash) {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const place = document.getElementById(hash.slice(1));
  const link = Object.assign(document.createElement("a"), { href: hash });
  document.body.append(link);
  scrollTo(0, place.getBoundingClientRect().top + scrollY > document.documentElement.scrollHeight / 2 ? 0 : document.documentElement.scrollHeight);
  await frame();
  link.click();
  await frame();
  await frame();
  const soon = place.getBoundingClientRect().top;
  for (let i = 0; i < 40; i++) await frame();
  link.remove();
  return [soon, place.getBoundingClientRect().top];
}

/**
 * The contents list marks the entry of the section in view, and the entry itself is in view.
 */
export async function docsContents(stage) {
  const page = await stage.open({ size: sizes[0] });
  for (const id of ["prices", "try", "dns", "resolve-redirect", "uptime-check", "caveats", "errors", "receipts"]) {
    await page.evaluate((name) => document.getElementById(name).scrollIntoView(), id);
    await page.waitForFunction((name) => document.querySelector("nav [aria-current]")?.hash === "#" + name, id);
    assert.equal(await page.locator("nav [aria-current]").count(), 1);
    const seen = await page.locator("nav [aria-current]").evaluate((node) => { const { top, bottom } = node.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; });
    assert.ok(seen, `${id}: its entry is out of view`);
  }
}

/**
 * The tabs work with the mouse and with the keyboard. A panel that is not chosen is hidden.
 */
export async function docsTabs(stage) {
  const page = await stage.open({ size: sizes[0] });
  const names = ["TypeScript", "Python", "Go", "curl"]; // the first one is the program that pays
  assert.deepEqual(await page.getByRole("tab").allInnerTexts(), names);
  for (const name of names) {
    await page.getByRole("tab", { name, exact: true }).click();
    const panel = page.getByRole("tabpanel");
    assert.equal(await panel.count(), 1, "one panel");
    assert.equal(await panel.getAttribute("id"), name.toLowerCase());
    assert.ok(await panel.locator("pre[id^=code-]").first().isVisible());
  }
  await page.keyboard.press("ArrowRight"); // goes from the last tab to the first
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "TypeScript");
  assert.ok(await page.locator("#code-retries").isHidden(), "retries are folded");
  const program = await page.locator("#code-typescript").innerText();
  assert.ok(program.trim().split("\n").length <= 8, program);
  await page.getByText("With retries", { exact: true }).click();
  await page.locator("#code-retries").waitFor();
  for (const kind of ["w", "s", "f", "n", "c"]) assert.ok(await page.locator(`#code-retries .${kind}`).count() > 0, `no colour for ${kind}`);
}

/**
 * Text and code are side by side if there is room. Otherwise no table may have cells out of
 * view.
 */
export async function docsRoom(stage) {
  for (const dark of [false, true]) {
    for (const size of sizes) {
      const page = await stage.open({ size, dark });
      const [prose, code] = await page.evaluate(() => ["#dns", "article[aria-labelledby=dns] .beside"].map((name) => document.querySelector(name).getBoundingClientRect().toJSON()));
      assert.equal(code.left > prose.right, size.width >= 1280, "code beside prose");
      const cut = await page.evaluate(hiddenCells);
      assert.deepEqual(cut, [], `${size.width} px`);
    }
  }
}

/**
 * Returns the cells of tables that are not visible without scrolling sideways, except empty
 * ones. It runs in the page.
 */
function hiddenCells() {
  const cut = [];
  for (const table of document.querySelectorAll("table")) {
    const box = table.parentElement, name = box.getAttribute("aria-label");
    if (box.scrollWidth > box.clientWidth) cut.push(`${name}: ${box.scrollWidth} px in ${box.clientWidth}`);
    for (const cell of table.querySelectorAll("tbody :is(th, td):not(:empty)")) {
      const { left, right, width } = cell.getBoundingClientRect();
      if (width < 1 || left < 0 || right > innerWidth) cut.push(`${name}: ${cell.textContent}`);
    }
  }
  return cut;
}

/**
 * Without JavaScript the page shows the program in every language, and links lead to their
 * places.
 */
export async function docsWithoutScript(stage) {
  const page = await stage.open({ script: false });
  for (const id of ["curl", "typescript", "python", "go"]) assert.ok(await page.locator("#code-" + id).isVisible(), id);
  await page.getByText("With retries", { exact: true }).click();
  assert.ok(await page.locator("#code-retries").isVisible());
  await page.goto(stage.origin + stage.path + "#python", { waitUntil: "load" });
  const top = await page.locator("#python").evaluate((node) => node.getBoundingClientRect().top);
  assert.ok(top >= 0 && top < 200, `#python is at ${top} px`);
}

/** At an address where there is nothing, a person gets a page, and a program gets an error. */
export async function nothingHere(stage) {
  const page = await stage.open({});
  assert.doesNotMatch(stage.policy, /unsafe|\*|https?:/);
  await stage.look("missing");
  assert.equal(await page.locator("h1").innerText(), "There is nothing at this address");
  const answer = await page.request.get(stage.origin + stage.path, { headers: { Accept: "application/json" } });
  assert.equal((await answer.json()).error.code, "unknown_path");
  await page.getByRole("link", { name: "DNS Explorer" }).click();
  await page.waitForURL(/docs#dns$/);
}

/** Copy buttons copy the code beside them. The first and the last are tried. */
async function copies(page) {
  const buttons = page.getByRole("button", { name: /^Copy/ });
  const n = await buttons.count();
  assert.ok(n > 0, "no copy button");
  for (const i of new Set([0, n - 1])) {
    const want = await buttons.nth(i).evaluate((node) => node.closest(".code").querySelector("pre").textContent);
    await buttons.nth(i).click();
    await page.waitForFunction(async (text) => (await navigator.clipboard.readText()).replaceAll("\r\n", "\n").trim() === text.trim(), want);
  }
}
