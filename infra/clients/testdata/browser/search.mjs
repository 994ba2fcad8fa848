// These scenarios are about the search of the documentation page.

import assert from "node:assert/strict";
import { narrow, phone, wide } from "./stage.mjs";

/** What visitors search for, and the place that must be found first. */
const questions = {
  "typescript": "typescript", "CORS": "paying", "wallet": "try", "private key": "try", "lost connection": "money",
  "validBefore": "payment-signature", "payer": "payment-signature", "double charge": "money", "idempotent": "money", "refund money": "refunds",
  "python": "python", "receipt": "receipts", "MX": "dns", "rate limit": "error-rate_limited", "timeout": "error-dns_timeout",
  "testnet": "try", "MCP": "mcp", "price": "prices", "certificate expired": "ssl-check", "NXDOMAIN": "error-nxdomain",
};

const first = (page) => page.locator("#found a").first();

/**
 * Reports whether a part of the page is visible, with nothing in front of it. It runs in the
 * page.
 */
function inView(node) {
  const { top, bottom, left } = node.getBoundingClientRect();
  const y = Math.min(Math.max(top, 0) + 4, innerHeight - 1);
  return top < innerHeight && bottom > 0 && node.contains(document.elementFromPoint(left + 4, y));
}

/**
 * Every search finds something useful first, and marks the searched words in the text that it
 * quotes.
 */
export async function docsSearch(stage) {
  const page = await stage.open({});
  const find = page.getByRole("searchbox", { name: "Search this page" });
  for (const [question, place] of Object.entries(questions)) {
    await find.fill(question);
    assert.equal(await first(page).getAttribute("href"), "#" + place, question);
    const marked = await page.locator("#found li").evaluateAll((list) => list.filter((item) => item.querySelector("mark")).length);
    assert.ok(marked > 0, `${question}: nothing is marked`);
    await page.waitForFunction((n) => document.getElementById("copied").textContent === `${n} place${n === 1 ? "" : "s"} found`, await page.locator("#found a").count());
  }
  await find.fill("no such word at all");
  assert.equal(await page.locator("#found").innerText(), "Nothing found.");
  for (const odd of ["\\", "(", "[a-", "?", "a{9}", "$^", ".*+", "\u202e", "-_", "x".repeat(500)]) await find.fill(odd);
  await find.fill("<b>price</b>");
  assert.equal(await page.locator("#found b b, #found mark b").count(), 0);
}

/**
 * The search works with the keyboard: "/" goes to it, the arrows go through the results, Enter
 * opens a place with its words marked, and Escape clears the search.
 */
export async function docsSearchByKeyboard(stage) {
  const page = await stage.open({});
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.hash || document.activeElement.tagName);
  await page.keyboard.press("/");
  assert.equal(await focused(), "find");
  await page.keyboard.type("wallet");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.equal(await focused(), await page.locator("#found a").nth(1).evaluate((link) => link.hash));
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  assert.equal(await focused(), "find");
  await page.locator("#find").fill("contract wallet");
  await page.keyboard.press("Enter"); // the place is in a fold, which must open
  await page.locator("#found").waitFor({ state: "hidden" });
  assert.equal(new URL(page.url()).hash, "#money");
  const place = page.locator("li").filter({ hasText: /^If a contract wallet signs again/ });
  assert.ok(await place.evaluate((node) => node.closest("details").open && document.activeElement === node), "the fold is open, and the focus there");
  assert.ok(await place.evaluate(inView), "what was found is in view");
  assert.ok(await page.evaluate(() => CSS.highlights.get("found").size > 0), "its words are marked");
  await page.keyboard.press("/");
  await page.keyboard.type("price/");
  assert.equal(await page.locator("#find").inputValue(), "price/", "a stroke is a letter there");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#find").inputValue(), "");
  assert.ok(await page.locator("#found").isHidden());
  assert.equal(await focused(), "find");
}

/**
 * axe has no serious finding while results are shown, and the results do not make the page
 * wider.
 */
export async function docsSearchShown(stage) {
  for (const size of [wide, phone, narrow]) {
    for (const dark of [false, true]) {
      const page = await stage.open({ size, dark });
      await page.keyboard.press("/");
      await page.keyboard.type("wallet");
      await first(page).waitFor();
      await stage.axe(`the search at ${size.width} px`);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= size.width);
      if (stage.screenshots) await stage.shoot(`docs-search-${size.width}${dark ? "-dark" : ""}.png`, "main");
    }
  }
}

/** If a result is in another tab or in a fold, opening the result must show it. */
export async function docsSearchOpens(stage) {
  for (const size of [wide, phone]) {
    const page = await stage.open({ size });
    await page.keyboard.press("/");
    await page.keyboard.type("python");
    await first(page).click();
    assert.ok(await page.locator("#python").isVisible());
    await page.keyboard.press("/");
    await page.keyboard.type("handshake failed");
    await first(page).click();
    const row = page.locator("#error-handshake_failed");
    assert.ok(await row.isVisible() && await row.evaluate(inView), `the row is in view at ${size.width} px`);
  }
}

/**
 * On a screen of 320 pixels, the page has a maximum height, and some parts are folded. Nothing
 * is folded on a wide screen or on paper, and a fold opens without JavaScript.
 */
export async function docsNarrow(stage) {
  const most = 33_495;
  const page = await stage.open({ size: narrow });
  const high = await page.evaluate(() => document.documentElement.scrollHeight);
  assert.ok(high <= most, `${high} px high, of ${most}`);
  const row = page.locator("#error-nxdomain");
  const folded = () => row.evaluate((node) => !node.checkVisibility({ contentVisibilityAuto: true }));
  assert.ok(await folded());
  await page.setViewportSize(wide);
  assert.ok(!(await folded()), "folded on a wide screen");
  await page.setViewportSize(narrow);
  await page.emulateMedia({ media: "print" });
  assert.ok(!(await folded()), "folded on paper");
  const without = await stage.open({ size: narrow, script: false });
  await without.getByText("Errors of the operations", { exact: true }).click();
  assert.ok(await without.locator("#error-nxdomain").isVisible());
  const direct = await stage.open({ size: narrow, path: stage.path + "#error-nxdomain" });
  assert.ok(await direct.locator("#error-nxdomain").evaluate(inView), "a link to an error opens the fold");
}
