// Plays scenarios in one Chromium. Each command is a line of JSON, {name, origin, path, args}.
// Each is answered by one line, {payer, ...} or {failed}. The sender of the commands checks
// what the service and the facilitator's books have recorded.

import { mkdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { Stage } from "./stage.mjs";
import * as answers from "./answers.mjs";
import * as docs from "./docs.mjs";
import * as faults from "./faults.mjs";
import * as money from "./money.mjs";
import * as pages from "./pages.mjs";
import * as play from "./play.mjs";
import * as receipts from "./receipts.mjs";
import * as search from "./search.mjs";
import * as tabs from "./tabs.mjs";
import * as wallets from "./wallets.mjs";

const scenarios = { ...answers, ...docs, ...faults, ...money, ...pages, ...play, ...receipts, ...search, ...tabs, ...wallets };
const [executablePath, screenshots] = process.argv.slice(2);
if (screenshots) mkdirSync(screenshots, { recursive: true });

const browser = await chromium.launch({
  executablePath, headless: true, timeout: 120_000,
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});
const answer = (value) => process.stdout.write(JSON.stringify(value) + "\n");
answer({ version: browser.version() });

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const stage = new Stage(browser, command, screenshots);
  try {
    const found = await scenarios[command.name](stage, command.args ?? {});
    await stage.end();
    answer({ payer: stage.payer, ...found });
  } catch (error) {
    answer({ failed: (error.stack ?? String(error)) + "\n" + (await stage.account()) });
  } finally {
    await stage.close();
  }
}
await browser.close();
