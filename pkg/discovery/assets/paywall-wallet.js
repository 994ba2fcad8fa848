// Finding a wallet (EIP-6963, EIP-1193), and signing with it (EIP-712, EIP-3009).

const chainID = BigInt(/^eip155:([1-9]\d{0,15})$/.exec(terms.network)[1]);
const refused = 4001, unknownChain = 4902, pending = -32002; // EIP-1193, EIP-3085, EIP-1474

const announced = []; // {id, name, icon, provider, plays}; plays: the server signs, with play money
let wallet = null, account = ""; // connected, or null and empty
let draft = null; // the authorization that is on show, not signed yet
let choosing = false; // wallets that come late still join the choice
let skew = 0; // seconds that this clock is behind the service's

function announce({ detail }) {
  const { info, provider, plays } = detail ?? {};
  if (typeof provider?.request !== "function" || announced.some((w) => w.id === info?.uuid || w.provider === provider)) return;
  const icon = typeof info?.icon === "string" && info.icon.startsWith("data:image/") ? info.icon : "";
  announced.push({ id: info?.uuid, name: words(info?.name, 40) || "Wallet", icon, provider, plays: page.play && plays });
  if (choosing) choose();
}

/** The wallets of the browser. */
function wallets() {
  const theirs = announced.filter((w) => !w.plays);
  if (theirs.length > 0) return theirs;
  const provider = window.ethereum;
  return typeof provider?.request === "function" ? [{ name: "Browser wallet", icon: "", provider }] : [];
}

/** Looks for wallets. They answer at once, or when they have loaded. */
function look() {
  choosing = true;
  show({ stage: 1, status: "Looking for a wallet in this browser." });
  window.dispatchEvent(new Event("eip6963:requestProvider"));
  const mine = turn;
  setTimeout(() => { if (turn === mine) choose(); }, announced.length + wallets().length > 0 ? 0 : 500);
}

function choose(problem = null) {
  choosing = true;
  wallet = null;
  account = "";
  draw(null);
  const play = announced.find((w) => w.plays);
  const found = wallets();
  if (!play && found.length === 0) {
    show({
      stage: 1, actions: [button("Look for a wallet again", look, "quiet")], body: elsewhere(),
      problem: {
        kind: "warn", title: "No wallet found in this browser",
        text: `Open this page where a wallet with USDC on ${chainName} is installed, or in the wallet’s own browser. Without one, see “Pay from code” below.`,
      },
    });
    return;
  }
  const list = el("ul", { class: "wallets" }, ...found.map((w) => {
    const node = button("", () => connect(w), play || found.length > 1 ? "quiet" : "");
    node.append(w.icon ? el("img", { src: w.icon, alt: "", width: "24", height: "24" }) : el("span", { class: "no-icon" }), el("bdi", {}, "Connect " + w.name));
    return el("li", {}, node);
  }));
  if (play) {
    if (found.length > 0 && !part("stages").children[2]) part("stages").prepend(el("li", {}, "Connect"));
    show({ stage: found.length > 0 ? 1 : 2, problem, body: others(), actions: [button(play.name, () => connect(play)), list] });
    return;
  }
  show({ stage: 1, problem, body: [list, ...others()], status: found.length > 1 ? `${found.length} wallets found. Choose the one to pay with.` : "Connecting shares your address with this page, nothing else." });
}

/** Asks the connected wallet (EIP-1193). */
const ask = (method, ...params) => wallet.provider.request({ method, params });

const codeOf = (error) => Number(error?.data?.originalError?.code ?? error?.code);

/** What a wallet answered instead of doing what it was asked. */
function complaint(error, title, text) {
  const code = codeOf(error);
  if (code === refused) return { kind: "warn", title, text: "The request was rejected in the wallet. " + text };
  if (code === pending) return { kind: "warn", title: "The wallet has a pending request", text: "Open the wallet, answer it there, and try again." };
  return { title: "The wallet reported an error", text: (words(typeof error === "string" ? error : error?.message) || "It gave no reason.") + " Nothing was signed or charged." };
}

async function connect(chosen) {
  choosing = false;
  busy(`Waiting for ${chosen.name}: allow this page to see your address.`);
  let accounts;
  try {
    accounts = await chosen.provider.request({ method: "eth_requestAccounts" });
  } catch (error) {
    choose(complaint(error, "You did not connect", "Nothing was signed or charged."));
    return;
  }
  if (!isAddress(accounts?.[0])) {
    choose({ title: "The wallet gave no account", text: "Unlock it, or choose an account in it, and connect again." });
    return;
  }
  [wallet, account] = [chosen, accounts[0]];
  if (wallet.plays) {
    draw(authorization());
    return sign();
  }
  follow(chosen);
  await checkChain();
}

const isAddress = (value) => typeof value === "string" && /^0x[0-9a-f]{40}$/i.test(value);

/** Follows what the person changes in the wallet, until something is signed. */
function follow(chosen) {
  if (chosen.followed || typeof chosen.provider.on !== "function") return;
  chosen.followed = true;
  const unsigned = () => wallet === chosen && !payment && !pressed;
  chosen.provider.on("accountsChanged", (accounts) => {
    if (!unsigned()) return;
    if (!isAddress(accounts?.[0])) return choose();
    account = accounts[0];
    checkChain().catch(broken);
  });
  chosen.provider.on("chainChanged", () => { if (unsigned()) checkChain().catch(broken); });
}

/** Goes on to the review on the right chain. elsewhere and here are problems to show on another, and on it. */
async function checkChain(elsewhere = null, here = null) {
  const mine = ++turn; // who presses a button meanwhile has gone on
  let id;
  try {
    id = BigInt(await ask("eth_chainId"));
    if (turn !== mine) return;
  } catch (error) {
    if (turn !== mine) return;
    choose(complaint(error, "The wallet did not say which chain it is on", "Connect again."));
    return;
  }
  if (id === chainID) return review(here);
  show({
    stage: 1,
    problem: elsewhere ?? { kind: "warn", title: "The wallet is on another chain", text: `It is on chain ${id}. This payment is on ${chainName}, chain ${chainID}.` },
    actions: [button("Switch to " + chainName, switchChain), button("Use another wallet", () => choose(), "quiet")],
  });
}

async function switchChain() {
  busy(`Waiting for ${wallet.name}: allow the switch to ${chainName}.`);
  const chainId = "0x" + chainID.toString(16);
  let problem = null;
  try {
    try {
      await ask("wallet_switchEthereumChain", { chainId });
    } catch (error) {
      if (codeOf(error) !== unknownChain || !page.rpc) throw error;
      await ask("wallet_addEthereumChain", {
        chainId, chainName: page.chain, rpcUrls: [page.rpc], ...(page.explorer && { blockExplorerUrls: [page.explorer] }),
        nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
      });
    }
  } catch (error) {
    problem = complaint(error, "The chain was not switched", `The payment is possible on ${chainName} only. Nothing was signed or charged.`);
  }
  await checkChain(problem);
}

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const random = (count) => hex(crypto.getRandomValues(new Uint8Array(count)));

/** An authorization to sign, valid from now for as long as the offer says. */
function authorization() {
  return {
    from: account, to: terms.payTo, value: terms.amount, validAfter: "0",
    validBefore: String(Math.floor(now()) + terms.maxTimeoutSeconds), nonce: "0x" + random(32),
  };
}

const now = () => Date.now() / 1000 + skew;
const secondsLeft = (a) => Number(a.validBefore) - now();

/** Puts what will be signed into its places on the page, or takes it away. */
function draw(next) {
  draft = next;
  const values = { ...next, token: terms.asset, chain: String(chainID) };
  for (const node of all("[data-signs]")) node.textContent = values[node.dataset.signs] ?? node.dataset.empty ?? node.textContent;
  for (const node of all(".mine")) node.hidden = !next;
  part("until").textContent = next ? new Date(next.validBefore * 1000).toLocaleTimeString() : "";
}

/** Shows exactly what will be signed: the bill, the exact terms, and for how long. */
function review(problem = null) {
  draw(authorization());
  const note = el("p", { class: "soft", id: "balance" }, `One transfer, valid for ${Math.round(terms.maxTimeoutSeconds / 60)} minutes.` + (page.play && " Play money: your account can be empty."));
  show({
    stage: 2, problem, status: "Connected. Your wallet will show the same terms.",
    body: [el("h3", { tabindex: "-1" }, "What you will sign"), note],
    actions: [button(`Sign and pay ${price}`, sign), button("Use another wallet", () => choose(), "quiet")],
  });
  if (!page.play) checkBalance(turn);
}

/** Warns when the account is known to hold too little. Without an answer nothing is said. */
async function checkBalance(mine) {
  let held;
  try {
    const data = "0x70a08231" + account.slice(2).toLowerCase().padStart(64, "0"); // balanceOf(address)
    const result = await ask("eth_call", { to: terms.asset, data }, "latest");
    if (!/^0x[0-9a-f]{1,64}$/i.test(result)) return;
    held = BigInt(result);
  } catch {
    return;
  }
  if (turn !== mine) return;
  if (held >= BigInt(terms.amount)) {
    part("balance").textContent += ` This account holds ${usdc(held)} USDC.`;
    return reveal();
  }
  warn({ kind: "warn", title: "The balance is too low", text: `This account holds ${usdc(held)} USDC on ${chainName}; the payment needs ${usdc(BigInt(terms.amount))}.` });
  const again = button("Check the balance again", () => review());
  const [signing, other] = part("actions").children;
  signing.classList.add("quiet");
  part("actions").replaceChildren(again, signing, other);
  reveal();
}

async function sign() {
  if (found()) return;
  if (secondsLeft(draft) < terms.maxTimeoutSeconds / 2) {
    review({ kind: "warn", title: "We refreshed the expiry", text: "Please check and sign again." });
    return;
  }
  const message = draft;
  busy(wallet.plays ? "Paying." : `Waiting for ${wallet.name}: sign the transfer of ${usdc(BigInt(message.value))} USDC.`);
  let signature;
  try {
    signature = await ask("eth_signTypedData_v4", account, JSON.stringify(typed(message)));
  } catch (error) {
    if (wallet.plays) return choose({ title: "Nothing was signed or charged", text: words(error?.message, 400) });
    await checkChain(null, complaint(error, "You did not sign", "Nothing was charged."));
    return;
  }
  if (found("Another tab was faster: what you just signed was not sent. ")) return;
  if (typeof signature !== "string" || !/^0x(?:[0-9a-f]{2}){64,4096}$/i.test(signature)) {
    review({ title: "The wallet’s signature cannot be read", text: "Nothing was charged. Try again, or use another wallet." });
    return;
  }
  if (secondsLeft(message) < 10) {
    review({ kind: "warn", title: "Signed too late", text: "The signature was about to expire, so it was not sent. Nothing was charged." });
    return;
  }
  await pay(message, standard(signature));
}

/**
 * Some wallets end a signature with 0 or 1 where the token wants 27 or 28, or
 * put that into the highest bit of s (EIP-2098).
 */
function standard(signature) {
  if (signature.length === 130) {
    const top = parseInt(signature.slice(66, 68), 16);
    return signature.slice(0, 66) + (top & 127).toString(16).padStart(2, "0") + signature.slice(68) + (top > 127 ? "1c" : "1b");
  }
  if (signature.length !== 132) return signature;
  const last = parseInt(signature.slice(-2), 16);
  return last < 2 ? signature.slice(0, -2) + (last + 27).toString(16) : signature;
}

/** The typed data of EIP-3009's transferWithAuthorization. */
function typed(message) {
  const fields = (text) => text.split(", ").map((f) => ({ type: f.split(" ")[0], name: f.split(" ")[1] }));
  return {
    types: {
      EIP712Domain: fields("string name, string version, uint256 chainId, address verifyingContract"),
      TransferWithAuthorization: fields("address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce"),
    },
    primaryType: "TransferWithAuthorization",
    domain: { name: terms.extra.name, version: terms.extra.version, chainId: Number(chainID), verifyingContract: terms.asset },
    message,
  };
}
