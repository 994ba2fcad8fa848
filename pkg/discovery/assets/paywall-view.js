// The parts of the page and how they are filled. Whatever is shown goes in as
// text: the address, the wallets and the answers are other people's words.

const part = (id) => document.getElementById(id);
const page = part("content").dataset;

/** An element. Children are elements or text, never markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const soft = (...children) => el("span", { class: "soft" }, ...children);
const mono = (text) => el("code", {}, text);
const all = (selector) => document.querySelectorAll(selector);

/** Bytes of base64 or base64url. */
const raw = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const decode = (text) => JSON.parse(new TextDecoder().decode(raw(text)));
const encode = (value) => btoa(Array.from(new TextEncoder().encode(JSON.stringify(value)), (b) => String.fromCharCode(b)).join(""));

const offer = JSON.parse(page.offer);
const terms = offer.accepts[0];
const price = "$" + usdc(BigInt(terms.amount));
const chainName = page.chain || terms.network;

/** Atomic units as USDC, which has six decimals. */
function usdc(units) {
  const digits = units.toString().padStart(7, "0");
  const rest = digits.slice(-6).replace(/0+$/, "");
  return digits.slice(0, -6) + (rest && "." + rest);
}

/** A stranger's words: one line, bounded, nothing that reorders what is shown. */
function words(value, most = 200) {
  const text = String(value ?? "").replace(/[\p{C}\p{Z}]+/gu, " ").trim();
  return text.length > most ? text.slice(0, most) + "…" : text;
}

/** A sentence as a title, or as a part of another sentence. */
const sentence = (text) => text.replace(/\.$/, "");

const say = (text) => { part("progress").textContent = text; };

let turn = 0; // counts what was shown; what waited longer than that is late
let pressed = null; // the button that started what is under way
let engaged = false; // a button was pressed: from then on the page scrolls to what it waits for

/** A button that starts run, unless something is under way. */
function button(label, run, kind = "") {
  const node = el("button", { type: "button", class: ("button " + kind).trim() }, label);
  node.addEventListener("click", () => press(node, run));
  return node;
}

async function press(node, run) {
  if (node.getAttribute("aria-disabled") === "true") return;
  pressed = node;
  engaged = true;
  try {
    await run();
  } catch (error) {
    broken(error);
  }
}

/**
 * Shows a state: its stage (1 connect, which is not a step where there is nothing to
 * connect, 2 sign, 3 answer), a line of status, a problem, a body and the actions,
 * the likeliest first. Focus that would be
 * lost moves to what is to be read, or done, next. calm leaves the page scrolled
 * as it is.
 */
function show({ stage, status = "", problem = null, body = [], actions = [], calm = false }) {
  turn++;
  pressed = null;
  const held = part("wallet").contains(document.activeElement);
  const steps = [...part("stages").children].reverse();
  for (const [i, item] of steps.entries()) {
    item.classList.toggle("past", 3 - i < stage);
    if (3 - i === stage) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  }
  say(status);
  warn(problem);
  part("stage").removeAttribute("aria-busy");
  part("stage").replaceChildren(...body);
  part("actions").replaceChildren(...actions);
  part("before").hidden = stage > 3;
  part("content").classList.toggle("paid", stage > 3);
  if (stage <= 3) part("result").hidden = true;
  if (held) part("wallet").querySelector("#stage [tabindex], #stage button, #actions button")?.focus({ preventScroll: true });
  if (!calm) reveal();
}

/**
 * Scrolls to the button that waits for the person, with the price and the payee
 * where all fits. Nobody is scrolled away from what they read before they have
 * pressed a button.
 */
function reveal() {
  const node = part("wallet").querySelector("#stage button, #actions button") ?? part("progress");
  const seen = (shown) => {
    const { top, bottom } = shown.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  };
  if (!engaged || seen(part("pay")) && seen(node)) return;
  part("pay").scrollIntoView();
  if (!seen(node)) node.scrollIntoView({ block: "end" });
}

/** Shows a problem, or takes the last one away. */
function warn(problem) {
  const box = part("problem");
  box.className = problem ? "box " + (problem.kind ?? "bad") : "";
  box.replaceChildren(...(problem ? [el("p", {}, el("strong", {}, problem.title)), el("p", {}, problem.text, ...footnote(problem.code))] : []));
}

/** The code of an error, for who looks it up. */
const footnote = (text) => (text ? [" ", el("span", { class: "fine" }, "Code: ", mono(text))] : []);

/** Keeps everything as it is while a wallet works. Some never answer when their window is closed. */
function busy(text) {
  const mine = ++turn;
  setTimeout(() => { if (turn === mine) say(text + " If no window opened, open the wallet itself, or reload this page."); }, 15_000);
  warn(null);
  say(text);
  for (const node of part("wallet").querySelectorAll("#stage button, #actions button")) node.setAttribute("aria-disabled", "true");
  pressed?.setAttribute("aria-busy", "true");
}

function broken(error) {
  show({
    stage: 1, actions: [button("Start again", start)],
    problem: { title: "This page could not go on", text: words(error?.message ?? error) + " A signature that you made is kept: start again to use it." },
  });
}

/** Copies text and says so, aloud too. */
async function copy(node, text) {
  const label = node.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = false; // no permission, or not a secure context
  }
  part("said").textContent = done ? "Copied" : "The browser did not allow copying";
  node.textContent = done ? "Copied" : "Not allowed";
  setTimeout(() => { node.textContent = label; part("said").textContent = ""; }, 2000);
}

/** A small button beside what it is for. */
function tool(label, run) {
  const node = el("button", { type: "button", class: "button small" }, label);
  node.addEventListener("click", () => run(node));
  return node;
}

const copyButton = (label, text) => tool(label, (node) => copy(node, text));

const downloadButton = (label, name, text) => tool(label, () => {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  part("said").textContent = "Downloaded " + name;
});

/** JSON without characters that reorder or hide what is shown: escaped, it means the same. */
const legible = (json) => json.replace(/[\p{Cf}\p{Zl}\p{Zp}\x7f-\x9f]/gu, (c) => c.split("").map((u) => "\\u" + u.charCodeAt(0).toString(16).padStart(4, "0")).join(""));

/**
 * Cuts a text after four lines, a list after eight entries, and returns it with a button
 * that shows all of it and cuts it again. Of a text it is hidden while nothing is cut.
 */
function cut(node, whole = "Show all") {
  node.classList.add("cut");
  const more = tool(whole, () => {
    const open = !node.classList.toggle("cut");
    more.setAttribute("aria-expanded", open);
    more.textContent = open ? "Show less" : whole;
  });
  more.classList.add("all");
  more.setAttribute("aria-expanded", false);
  return [node, more];
}

function measure() {
  for (const more of all("p.cut + .all")) more.hidden = more.previousSibling.scrollHeight <= more.previousSibling.clientHeight;
}

/** Ways to this page from where there is a wallet; on a phone, into the browser that a wallet brings. */
function elsewhere() {
  const url = location.href.split("#")[0];
  const browsers = matchMedia("(pointer: coarse)").matches
    ? [["MetaMask", "https://link.metamask.io/dapp/" + url.split("//")[1]], ["Coinbase Wallet", "https://go.cb-w.com/dapp?cb_url=" + encodeURIComponent(url)]] : [];
  return [
    ...browsers.map(([name, href]) => el("a", { class: "button", href, rel: "noopener noreferrer" }, "Open in " + name)),
    copyButton("Copy the address of this page", url),
  ];
}

/** Rows of a description list: [name, what it is, words that explain it, in parentheses]. */
function rows(list) {
  return list.flatMap(([name, value, note]) => [
    el("dt", {}, name), el("dd", {}, value instanceof Node ? value : mono(value), ...(note ? [" ", soft(`(${note})`)] : [])),
  ]);
}

for (const node of all("button.copy")) {
  node.hidden = false;
  node.addEventListener("click", () => copy(node, node.dataset.copy ?? part(node.dataset.from).textContent));
}
