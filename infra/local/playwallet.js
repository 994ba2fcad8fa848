// The wallet of play money. To the page it is a wallet like any other (EIP-1193, EIP-6963),
// except that the server signs, with a key that is gone when it ends.
{
  const known = { eth_requestAccounts: ["{{account}}"], eth_chainId: "0x" + (+"{{chain}}").toString(16) };
  const sign = async (message) => {
    let answer;
    try {
      answer = await fetch("{{path}}", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message),
        cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(10_000),
      });
    } catch {
      throw { message: `The server does not answer. From a terminal: make pay URL='${location.origin}${location.pathname}${location.search}'` };
    }
    if (!answer.ok) throw { message: await answer.text() };
    return (await answer.json()).signature;
  };
  const request = async ({ method, params }) => {
    if (known[method]) return known[method];
    if (method === "eth_signTypedData_v4") return sign(JSON.parse(params[1]).message);
    throw { code: 4200, message: "The play wallet signs payments and does nothing else." };
  };
  const detail = { info: { uuid: "play-money", name: "Pay with play money" }, provider: { request }, plays: true };
  window.addEventListener("eip6963:requestProvider", () => window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail })));
}
