// The documentation page.

import assert from "node:assert/strict";

export async function documentation(stage) {
  const page = await stage.open({});
  assert.doesNotMatch(stage.policy, /unsafe|\*|https?:/);
  await stage.look("docs-top", "top");
  await stage.look("docs-operation", "#dns", false);
  await stage.look("docs-handshake", "#paying", false);
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

/** Every copy button copies the code beside it. */
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
