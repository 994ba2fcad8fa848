// A stage is the browser context of one scenario. It checks what must hold in every scenario:
// no console error, no request to another origin, and no violation of the content security
// policy. The method look also checks the page at six widths, light and dark: axe has no
// serious finding, the page does not scroll sideways, and no name is covered by its value. The
// price, the payee and the button to press next are visible without scrolling.

import assert from "node:assert/strict";
import { join } from "node:path";
import axe from "axe-core";
import { inject } from "./wallet.mjs";

export const patience = 60_000;
export const wide = { width: 1280, height: 800 };
export const narrow = { width: 320, height: 640 };
export const phone = { width: 390, height: 844 };
const tablet = { width: 768, height: 1024 };
const laptop = { width: 1040, height: 800 };
const desk = { width: 1920, height: 1080 };
export const widths = [narrow, phone, tablet, laptop, wide, desk];
const views = widths.flatMap((size) => ["light", "dark"].map((scheme) => [size === wide ? scheme : size.width + (scheme === "dark" ? "-dark" : ""), size, scheme]));

export class Stage {
  constructor(browser, command, screenshots) {
    Object.assign(this, { browser, screenshots, origin: command.origin, path: command.path });
    this.contexts = [];
    this.faults = [];
    this.payer = "";
  }

  /**
   * Opens a page and puts wallets into it. If stop is given, the page arrives in two pieces:
   * up to the end of that text, and the rest half a second later.
   */
  async open({ path = this.path, wallets = [], script = true, dark = false, size = wide, storageState, motion = false, touch = false, stop } = {}) {
    const context = await this.browser.newContext({
      viewport: size, colorScheme: dark ? "dark" : "light", javaScriptEnabled: script, acceptDownloads: true, hasTouch: touch, isMobile: touch, reducedMotion: motion ? "no-preference" : "reduce",
      locale: "en-GB", timezoneId: "UTC", storageState, extraHTTPHeaders: stop ? { "Stop-Within": stop } : {},
    });
    this.contexts.push(context);
    context.setDefaultTimeout(patience);
    await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: this.origin });
    if (script) await inject(context, wallets);
    if (wallets.length > 0) this.payer = wallets[0].address;
    const page = await context.newPage();
    this.page = page;
    this.watch(page);
    const response = await page.goto(this.origin + path, { waitUntil: stop ? "commit" : "load" });
    if (stop) {
      await page.waitForTimeout(500);
      await page.request.get(this.origin + "/go-on");
      await page.waitForLoadState("load");
    }
    this.policy = response.headers()["content-security-policy"] ?? "";
    return page;
  }

  watch(page) {
    page.on("console", (message) => {
      // The browser reports every status of 400 and above, and every lost connection, as an
      // error. At our own origin, such errors are part of the scenario.
      const ours = message.location().url.startsWith(this.origin) && message.text().startsWith("Failed to load resource: ");
      if (message.type() === "error" && !ours) this.faults.push("console: " + message.text());
    });
    page.on("pageerror", (error) => this.faults.push("page error: " + error.stack));
    page.on("dialog", (dialog) => { this.faults.push("dialog: " + dialog.message()); dialog.dismiss(); });
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(this.origin + "/") && !url.startsWith("data:image/") && !url.startsWith("blob:" + this.origin + "/")) this.faults.push("request to " + url);
    });
  }

  /** Waits until the wallet panel (or another element) shows a text. */
  async sees(text, where = "#wallet") {
    await this.page.locator(where).filter({ hasText: text }).waitFor();
  }

  async click(name, exact = true) {
    await this.page.getByRole("button", { name, exact }).click();
  }

  /**
   * Checks the page in its present state. The screenshots get this name; with "", none are
   * taken. Pass checked as false for a state that axe has already checked.
   */
  async look(name, shot = "top", checked = true) {
    const { page } = this;
    for (const [how, size, colorScheme] of views) {
      const what = `${name || "state"} ${how}`;
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      // Dark colours are the same at every width. In the dark scheme, axe runs only at these
      // two widths, which show everything that the others show.
      if (checked && (colorScheme === "light" || size === narrow || size === wide)) await this.axe(what);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= size.width, `${what}: the page is ${width} px wide`);
      assert.deepEqual(await page.evaluate(printedOver), [], what + ": printed over by what is beside it");
      if (shot === "top") await this.fold(what);
      if (name && this.screenshots) await this.shoot(`${name}-${how}.png`, shot);
    }
    await page.setViewportSize(wide);
    await page.emulateMedia({ colorScheme: "light" });
  }

  /**
   * On a page that asks for money, the price, the payee and the button to press next must be
   * visible without scrolling, completely and with nothing in front of them.
   */
  async fold(what) {
    await this.page.evaluate(() => scrollTo(0, 0));
    assert.deepEqual(await this.page.evaluate(outOfSight), [], what + ": not in view without scrolling");
  }

  async shoot(file, shot) {
    const { page } = this;
    const path = join(this.screenshots, file);
    const [scroll, focus] = [await page.evaluate(() => scrollY), { animations: "disabled", path, caret: "hide" }];
    if (shot === "page") await page.screenshot({ ...focus, fullPage: true });
    else {
      await page.evaluate((where) => {
        if (where === "top") scrollTo(0, 0);
        else document.querySelector(where).scrollIntoView();
      }, shot);
      await page.screenshot(focus);
    }
    await page.evaluate((top) => scrollTo(0, top), scroll);
  }

  async axe(what) {
    const { page } = this;
    // The page's policy does not apply to evaluate, but would block a script element.
    if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe.source);
    const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    assert.ok(passes.length > 10, `${what}: axe looked at ${passes.length} rules only`);
    const grave = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
    const words = grave.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join(" | ")}`);
    assert.deepEqual(words, [], what);
  }

  /** Returns what the page shows, to help find out why the scenario failed. */
  async account() {
    const text = await this.page?.locator("#wallet, #result").allInnerTexts().catch(() => []);
    return [...(text ?? []), ...this.faults].join("\n").slice(0, 3000);
  }

  async end() {
    for (const context of this.contexts) {
      for (const page of context.pages()) {
        const stopped = await page.evaluate(() => window.stoppedByPolicy ?? []).catch(() => []);
        this.faults.push(...stopped.map((text) => "policy: " + text));
      }
    }
    assert.deepEqual(this.faults, []);
  }

  async close() {
    for (const context of this.contexts) await context.close().catch(() => {});
  }
}

/**
 * Returns the names that are covered by their values, and by how many pixels. It runs in the
 * page.
 */
function printedOver() {
  const box = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect();
  };
  return [...document.querySelectorAll("th + td, td + td, dt + dd")].flatMap((value) => {
    const [a, b] = [box(value.previousElementSibling), box(value)];
    const sameLine = a.bottom > b.top + 2 && b.bottom > a.top + 2;
    return a.width > 0 && b.width > 0 && sameLine && a.right > b.left + 1 ? [`${value.previousElementSibling.textContent}: ${Math.round(a.right - b.left)} px`] : [];
  });
}

/** Returns what a paywall must show but does not, in words. It runs in the page. */
export function outOfSight() {
  const price = document.querySelector("#pay .price");
  if (!price) return [];
  const wallet = document.querySelector("#wallet");
  const must = wallet.hidden
    ? { "the button": document.querySelector("form.ask button") } // the form's button, because there is nothing to pay for yet
    : { "the price": price, "the payee": document.querySelector("[data-signs=to]"), "the button": wallet.querySelector("#stage button, #actions button") };
  return Object.entries(must).flatMap(([name, node]) => {
    if (!node) return [];
    const { top, bottom, left, right } = node.getBoundingClientRect();
    const hit = (x, y) => node.contains(document.elementFromPoint(x, y));
    const whole = top >= 0 && bottom <= innerHeight && hit(left + 3, top + 4) && hit(left + 3, bottom - 4);
    return whole ? [] : [`${name}, at ${Math.round(top)} to ${Math.round(bottom)} of ${innerHeight} px`];
  });
}
