// Counts the tokens (o200k_base) of the files named on the command line, and prints them as
// JSON, by their names.
import { readFileSync } from "node:fs";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

const counted = process.argv.slice(2).map((name) => [name, countTokens(readFileSync(name, "utf8"))]);
console.log(JSON.stringify(Object.fromEntries(counted)));
