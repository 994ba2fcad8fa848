// answer.mjs CHROMIUM URL LIGHTHOUSE pays with play money on a page, on a simulated phone. It
// prints what Lighthouse measures as JSON. From the press of the button to the answer, this is
// the blocking time, the layout shift and the longest interaction; for the page that shows the
// answer, it is the accessibility.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [executablePath, url, folder] = process.argv.slice(2);
const installed = createRequire(folder + "/node_modules/lighthouse/package.json");
const load = (name) => import(pathToFileURL(installed.resolve(name)));
const { launch } = (await load("puppeteer-core")).default;
const { startFlow } = await load("./core/index.js");

const browser = await launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
try {
  const page = await browser.newPage();
  const flow = await startFlow(page);
  await flow.navigate(url);
  await flow.startTimespan();
  await page.locator("::-p-aria(Pay with play money)").click();
  await page.locator("#receipt ::-p-text(signed this answer.)").wait();
  await flow.endTimespan();
  await flow.snapshot();
  const [, { lhr: paying }, { lhr: shown }] = (await flow.createFlowResult()).steps;
  console.log(JSON.stringify({
    accessibility: shown.categories.accessibility.score,
    blocking: paying.audits["total-blocking-time"].numericValue,
    shift: paying.audits["cumulative-layout-shift"].numericValue,
    interaction: paying.audits["interaction-to-next-paint"].numericValue ?? 0,
  }));
} finally {
  await browser.close();
}
