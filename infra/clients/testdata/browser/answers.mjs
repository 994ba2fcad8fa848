// These scenarios show answers that are longer than the catalog's examples, and answers in
// which the page marks a value. The answers replace the service's own, and all have the same
// fixed date.

import assert from "node:assert/strict";
import { phone, wide } from "./stage.mjs";
import { Wallet } from "./wallet.mjs";
import { toAnswer, toReview } from "./wallets.mjs";

const answered = "Thu, 29 Oct 2026 12:00:00 GMT";
const long = "https://login.example.net/oauth2/authorize?client_id=0oa1b2c3d4&redirect_uri=https%3A%2F%2Fwww.start.example.com%2Fcallback&response_type=code&scope=openid%20profile&state=" + "af0ifjsldkj-".repeat(20);
const dkim = "v=DKIM1; k=rsa; p=" + "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A".repeat(25);
const many = Array.from({ length: 60 }, (_, i) => `name-${i + 1}.a-domain-with-a-long-name.example.com`);

/** Buys an answer at a path. The browser gets a given answer instead of the service's. */
async function given(stage, path, change) {
  const page = await stage.open({ path: path + "?domain=www.example.com", wallets: [new Wallet()] });
  const { tools } = await (await fetch(stage.origin + "/v1/catalog")).json();
  const json = { ...tools.find((tool) => tool.path === path).example_response, ...change };
  await page.route((url) => url.pathname === path, (route) => route.fulfill({ json, headers: { date: answered } }));
  await toReview(stage);
  await toAnswer(stage);
  return page;
}

const hop = (status, url, location) => ({ index: 0, url, method: "HEAD", status, peer_ip: "93.184.215.14", location });

/**
 * A chain of redirects has a long address. Every address is complete, but only four lines of
 * it are visible until the person presses "Show all".
 */
export async function longChain(stage) {
  const page = await given(stage, "/v1/tools/resolve-redirect", {
    final_url: "https://login.example.net/signin", hop_count: 5, truncated: true, stop_reason: "max_hops",
    hops: [
      hop(301, "https://start.example.com/", "https://www.start.example.com/"), hop(302, "https://www.start.example.com/", "/en/"),
      hop(302, "https://www.start.example.com/en/", long), hop(303, long, "https://login.example.net/signin"),
      hop(302, "https://login.example.net/signin", "https://login.example.net/again"),
    ],
  });
  assert.equal(await page.locator("#result-title").innerText(), "Still redirects after 5 requests, at login.example.net");
  const hops = await page.locator(".hops > li").allInnerTexts();
  assert.equal(hops.length, 5);
  assert.match(hops[1], /Leads to \/en\//, "a relative address is not the next one");
  assert.doesNotMatch(hops[0], /Leads to/, "the next address is said once");
  assert.match(hops[4], /Leads to https:\/\/login\.example\.net\/again/);
  assert.equal(await page.locator(".hops > li:nth-child(4) bdi").innerText(), long);
  await cutsTexts(page, ".hops > li:nth-child(4)");
  await stage.look("long-chain", "page");
}

/**
 * A long text shows four lines, and more after "Show all". The button exists only at widths at
 * which the text is cut.
 */
async function cutsTexts(page, where) {
  const text = page.locator(where + " p").first(), button = page.locator(where + " .all").first();
  await page.setViewportSize(phone);
  const height = async () => text.evaluate((node) => [node.clientHeight, parseFloat(getComputedStyle(node).lineHeight)]);
  const [cut, line] = await height();
  assert.ok(cut <= 4 * line + 1, `${cut} px is more than four lines of ${line}`);
  assert.equal(await button.innerText(), "Show all");
  await button.click();
  assert.ok((await height())[0] > 4 * line + 1, "it shows no more");
  assert.deepEqual([await button.innerText(), await button.getAttribute("aria-expanded")], ["Show less", "true"]);
  await button.click();
  assert.ok((await height())[0] <= 4 * line + 1);
  await page.setViewportSize(wide);
}

/** An answer with a long list, one of whose texts has many lines. */
export async function longTexts(stage) {
  const page = await given(stage, "/v1/tools/dns", { type: "TXT", records: [dkim, ...many].map((text) => ({ text })) });
  assert.equal(await page.locator("#result-title").innerText(), "61 text records");
  assert.equal(await page.locator("#facts tbody").first().locator("tr:visible").count(), 8);
  await cutsTexts(page, "#facts tr:first-child");
  await stage.look("long-texts", "page");
  assert.match(await page.locator("#facts .fields").innerText(), /TTL\s+300 s/);
  await onPaper(stage, "paper-dns");
  await stage.click("Show all 61");
  assert.equal(await page.locator("#facts tbody").first().locator("tr:visible").count(), 61);
}

/**
 * The page marks what is wrong with a certificate. The distance of a date is counted from the
 * time of the answer.
 */
export async function expiredCertificate(stage) {
  const page = await given(stage, "/v1/tools/ssl-check", { not_after: "2015-04-12T23:59:59Z", expired: true, hostname_match: false, sans: many });
  assert.equal(await page.locator("#result-title").getAttribute("class"), "verdict bad");
  assert.equal(await page.locator("#result-title").innerText(), "The certificate expired 12 April 2015, 11 years ago");
  assert.deepEqual(await page.locator("#facts .wrong").allInnerTexts(), ["11 years ago", "yes", "no"]);
  assert.match(await page.locator("#facts .fields").innerText(), /1 October 2026, 00:00 UTC 28 days ago/);
  assert.match(await page.locator("#receipt").innerText(), /29 October 2026, 12:00 UTC/);
  assert.equal(await page.locator("#facts li:visible").count(), 8);
  await stage.look("expired", "page");
  await onPaper(stage, "paper-certificate");
  await stage.click("Show all 60");
  assert.equal(await page.locator("#facts li:visible").count(), 60);
}

/** The answer has the number of the registrar, and a registration that has ended. */
export async function endedRegistration(stage) {
  const page = await given(stage, "/v1/tools/whois", { expires_at: "2026-10-01T00:00:00Z", nameservers: many.slice(0, 9) });
  const facts = await page.locator("#facts .fields").innerText();
  assert.match(facts, /Registrar\s+Example Registrar, Inc\.\s+IANA ID 376/);
  assert.deepEqual(await page.locator("#facts .wrong").allInnerTexts(), ["28 days ago"]);
  await stage.look("ended", "page");
}

/**
 * A printout has no buttons and cuts nothing. It has the receipt, with the question and the
 * date.
 */
async function onPaper(stage, name) {
  const { page } = stage;
  await page.emulateMedia({ media: "print" });
  for (const what of ["button", "summary", "footer", "form"]) assert.equal(await page.locator(what + ":visible").count(), 0, what + " on paper");
  assert.ok((await page.locator("#facts :is(tbody tr, li):visible").count()) >= 60, "all is on paper");
  assert.match(await page.locator("#receipt").innerText(), /Question\s+\S[^]*Answered\s+29 October 2026, 12:00 UTC/);
  if (stage.screenshots) await page.screenshot({ path: `${stage.screenshots}/${name}.png`, fullPage: true });
  await page.emulateMedia({ media: "screen" });
}
