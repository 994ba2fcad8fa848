// These wallets really sign. The page sees an EIP-1193 provider, which is announced by
// EIP-6963 or is window.ethereum. Each wallet has its own key. It answers every request here,
// or refuses it as the scenario says.

import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";

export const base = 8453;

export class Wallet {
  constructor({ name = "Test wallet", legacy = false, silent = false, chain = base, chains = [base, 1], balance = 25_000_000n, icon = "", bend = (_, result) => result } = {}) {
    this.account = privateKeyToAccount(generatePrivateKey());
    this.address = this.account.address;
    Object.assign(this, { name, legacy, silent, chain, chains, balance, icon, bend });
    this.calls = []; // [method, params] in order
    this.signed = []; // the typed data that was signed
    this.refusals = []; // methods to refuse, once each
    this.gates = {}; // method -> a promise that its answer waits for
  }

  /** Makes the wallet refuse a method once, as if the person had said no. */
  refuse(method) { this.refusals.push(method); }

  /** Delays the answers of a method until they are released. */
  hold(method) {
    let release;
    this.gates[method] = new Promise((resolve) => { release = resolve; });
    return { release };
  }

  async request(method, params) {
    this.calls.push([method, params]);
    await this.gates[method];
    const at = this.refusals.indexOf(method);
    if (at >= 0) {
      this.refusals.splice(at, 1);
      throw { code: 4001, message: "User rejected the request." };
    }
    return this.bend(method, await this.answer(method, params)); // an odd wallet returns or throws something else
  }

  async answer(method, params) {
    switch (method) {
      case "eth_requestAccounts": return [this.address];
      case "eth_chainId": return "0x" + this.chain.toString(16);
      case "wallet_switchEthereumChain": return this.change(Number(params[0].chainId));
      case "wallet_addEthereumChain":
        this.chains.push(Number(params[0].chainId));
        return this.change(Number(params[0].chainId));
      case "eth_call":
        if (this.balance === null) throw { code: -32603, message: "Internal JSON-RPC error." };
        return "0x" + this.balance.toString(16).padStart(64, "0");
      case "eth_signTypedData_v4": {
        if (params[0].toLowerCase() !== this.address.toLowerCase()) throw { code: 4100, message: "No such account." };
        const { domain, types, primaryType, message } = JSON.parse(params[1]);
        if (BigInt(domain.chainId) !== BigInt(this.chain)) throw { code: -32602, message: "The wallet is on another chain." };
        this.signed.push({ domain, primaryType, message });
        delete types.EIP712Domain;
        return this.account.signTypedData({ domain, types, primaryType, message });
      }
    }
    throw { code: 4200, message: "Unsupported method " + method };
  }

  change(chain) {
    if (!this.chains.includes(chain)) throw { code: 4902, message: "Unrecognized chain ID." };
    this.chain = chain;
    return null;
  }

  asked(method) { return this.calls.filter(([m]) => m === method).length; }
}

/** Puts wallets into every page of a context. */
export async function inject(context, wallets) {
  await context.exposeBinding("walletRequest", async (_, n, method, params) => {
    try {
      return { result: (await wallets[n].request(method, params)) ?? null };
    } catch (error) {
      if (typeof error === "string") return { thrown: error };
      if (error.code === undefined) throw error;
      return { error };
    }
  });
  await context.addInitScript((list) => {
    window.stoppedByPolicy = [];
    // Timers of one second do not fire until freeTicks. The page then repeats no request by
    // itself while a scenario checks the state before that.
    const [real, held] = [window.setTimeout, []];
    let free = false;
    window.setTimeout = (run, delay, ...rest) => (delay === 1000 && !free ? (held.push(run), 0) : real(run, delay, ...rest));
    window.freeTicks = (go) => {
      free = go;
      if (go) for (const run of held.splice(0)) run();
    };
    document.addEventListener("securitypolicyviolation", (e) => window.stoppedByPolicy.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
    const listeners = {};
    window.emitFromWallet = (event, value) => { for (const f of listeners[event] ?? []) f(value); };
    const announcements = [];
    list.forEach(({ name, icon, legacy, silent }, n) => {
      const provider = {
        on: (event, f) => { (listeners[event] ??= []).push(f); },
        request: async ({ method, params }) => {
          const { result, error, thrown } = await window.walletRequest(n, method, params ?? []);
          if (thrown) throw thrown;
          if (error) throw Object.assign(new Error(error.message), error);
          return result;
        },
      };
      if (legacy) {
        window.ethereum = provider;
        return;
      }
      const info = Object.freeze({ uuid: `350670db-19fa-4704-a166-e52e178b59d${n}`, name, icon, rdns: "test.wallet" + n });
      announcements.push({ n, silent, detail: Object.freeze({ info, provider }) });
    });
    const announce = (detail) => window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
    window.wakeWallets = () => { for (const a of announcements) { a.silent = false; announce(a.detail); } };
    window.addEventListener("eip6963:requestProvider", () => { for (const a of announcements) if (!a.silent) announce(a.detail); });
    for (const a of announcements) if (!a.silent) announce(a.detail);
  }, wallets.map(({ name, icon, legacy, silent }) => ({ name, icon, legacy, silent })));
}
