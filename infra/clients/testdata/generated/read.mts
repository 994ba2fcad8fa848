// Pays for an answer with the client that openapi-typescript generates from the service's
// description, and reads the answer by the types of that client. The second answer is a charged
// error with a status that the description does not declare.
import createClient from "openapi-fetch";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";
import type { DnsResult, ErrorBody, MxRecord, paths } from "./api.d.ts";

const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:8453", new ExactEvmScheme(account)));
const client = createClient<paths>({ baseUrl: process.argv[2], fetch: pay });
const { data, error } = await client.GET("/v1/tools/dns", { params: { query: { domain: "example.com", type: "MX" } } });
if (!data) throw new Error(JSON.stringify(error));
const result: DnsResult = data;
const mail = result.records.filter((record): record is MxRecord => "exchange" in record);
const gone = await client.GET("/v1/tools/dns", { params: { query: { domain: "gone.example.com" } } });
const { code, charged } = (gone.error as ErrorBody).error;
console.log(JSON.stringify({ gone: { status: gone.response.status, code, charged }, result, exchanges: mail.map((record) => record.exchange) }));
