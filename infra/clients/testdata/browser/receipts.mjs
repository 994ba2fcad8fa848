// These scenarios are about what the page says about the signed receipt of an answer.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Wallet } from "./wallet.mjs";
import { answered, answerJSON, toAnswer, toReview } from "./wallets.mjs";

/**
 * Pays, and checks what the page says about the receipt. The text without names what the
 * browser lacks.
 */
export async function receiptSays(stage, { says, without }) {
  const page = await stage.open({ wallets: [new Wallet()] });
  if (without === "Ed25519") await page.evaluate(() => { crypto.subtle.importKey = () => Promise.reject(new DOMException("no", "NotSupportedError")); });
  if (without === "crypto") await page.evaluate(() => Object.defineProperty(crypto, "subtle", { value: undefined }));
  if (without === "keys") await page.route("**/.well-known/did.json", (route) => route.fulfill({ status: 404, json: {} }));
  if (without === "network") await page.route("**/.well-known/did.json", (route) => route.abort());
  await toReview(stage);
  await toAnswer(stage);
  await stage.sees(says, "#receipt");
  return { answer: await answerJSON(stage) };
}

/**
 * The downloaded receipt is enough to prove the answer. After a replay, the receipt is the
 * same.
 */
export async function receiptKept(stage) {
  const page = await stage.open({ wallets: [new Wallet()] });
  await toReview(stage);
  await toAnswer(stage);
  await stage.sees(/Valid: 127\.0\.0\.1:\d+ signed this answer\./, "#receipt");
  await stage.look("", "#result");
  const first = await download(page);
  const [head, payload] = first.receipt.split(".").map((part) => Buffer.from(part, "base64url"));
  const { kid } = JSON.parse(head), said = JSON.parse(payload);
  const { verificationMethod } = await (await page.request.get(stage.origin + "/.well-known/did.json")).json();
  assert.equal(kid, verificationMethod[0].id);
  const key = await crypto.subtle.importKey("jwk", verificationMethod[0].publicKeyJwk, "Ed25519", false, ["verify"]);
  const [signed, signature] = [first.receipt.slice(0, first.receipt.lastIndexOf(".")), Buffer.from(first.receipt.split(".")[2], "base64url")];
  assert.ok(await crypto.subtle.verify("Ed25519", key, signature, Buffer.from(signed)));
  assert.equal(said.responseHash, "0x" + createHash("sha256").update(first.body).digest("hex"), "the bytes in the file are those that were signed");
  assert.equal(said.request, "GET /v1/tools/dns?domain=www.example.com&type=A");
  assert.deepEqual([said.transaction, said.payer.toLowerCase()], [first.transaction, first.payer.toLowerCase()]);
  assert.deepEqual(JSON.parse(first.body), await answerJSON(stage));
  await page.reload();
  await stage.click("Get the answer again");
  await answered(stage);
  await stage.sees(" signed this answer.", "#receipt");
  const again = await download(page);
  assert.deepEqual([again.receipt, again.body], [first.receipt, first.body]);
}

async function download(page) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download receipt" }).click()]);
  return JSON.parse(await readFile(await file.path(), "utf8"));
}
