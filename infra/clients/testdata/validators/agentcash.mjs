// Prints, as JSON, everything that @agentcash/discovery reports about an origin: its warnings,
// and what it understands of each endpoint. x402scan reads services with this library. The
// library's command line is not used, because it exits with 0 whatever it finds.
import * as reader from "@agentcash/discovery";

// Warnings that are accepted, each with the reason.
const accepted = {
  METADATA_OG_IMAGE_MISSING: "the service serves no picture; x402scan shows the favicon",
};

const origin = process.argv[2];
const warnings = [];
const note = (where, list) => {
  for (const w of list) {
    if (!(w.code in accepted)) warnings.push({ where, code: w.code, severity: w.severity, message: w.message });
  }
};
const fault = (where, message) => warnings.push({ where, code: "SUITE", severity: "error", message });

// metadata returns what x402scan takes from the page at the root.
async function metadata() {
  const page = await (await fetch(origin, { signal: AbortSignal.timeout(20_000) })).text();
  return {
    title: /<title>([^<]*)<\/title>/.exec(page)?.[1],
    description: /<meta name="description" content="([^"]*)"/.exec(page)?.[1],
    favicon: await reader.scrapeFavicon(origin),
    ogImages: [],
  };
}

async function endpoint(openapi, e, page) {
  const where = `${e.method} ${e.path}`;
  note(`${where} in the description`, reader.getWarningsForL3(reader.getL3ForOpenAPI(openapi, e.path, e.method)));
  const live = await reader.checkEndpointSchema({ url: origin + e.path, probe: true });
  if (!live.found) {
    fault(where, `not found: ${live.cause} ${live.message ?? ""}`);
    return {};
  }
  const seen = { path: e.path, mode: e.authMode, price: e.price, methods: [], probed: {} };
  for (const a of live.advisories) {
    seen.methods.push(a.method);
    note(`${a.method} ${e.path} live`, reader.getWarningsForL3(a));
    if (a.paymentRequiredBody === undefined) continue;
    seen.probed[a.method] = { mode: a.authMode, options: a.paymentOptions, input: !!a.inputSchema, output: !!a.outputSchema };
    const options = { requireInputSchema: true, requireOutputSchema: true, metadata: page };
    note(`402 of ${a.method} ${e.path}`, reader.validatePaymentRequiredDetailed(a.paymentRequiredBody, options).issues);
  }
  return seen;
}

const found = await reader.discoverOriginSchema({ target: origin });
const openapi = (await reader.getOpenAPI(origin)).unwrapOr(null);
note("description", reader.getWarningsForOpenAPI(openapi));
note("favicon", (await reader.getWarningsForFavicon(origin)).unwrapOr([{ code: "SUITE", severity: "error", message: "no answer" }]));
const endpoints = [];
if (!found.found || openapi === null || reader.isOpenApiParseFailure(openapi)) {
  fault("origin", `nothing found: ${found.cause ?? "the description cannot be read"}`);
} else {
  const l2 = reader.checkL2ForOpenAPI(openapi);
  note("routes", reader.getWarningsForL2(l2));
  note("guidance", reader.getWarningsForL4(reader.checkL4ForOpenAPI(openapi)));
  const page = await metadata();
  for (const e of found.endpoints) endpoints.push(await endpoint(openapi, e, page));
}
// The library does not read all response bodies. The open connections would keep this process
// alive for seconds.
process.stdout.write(JSON.stringify({ warnings, trust: found.trustTier, endpoints }), () => process.exit(0));
