// Counts the tokens (o200k_base) of each file on the command line. It prints the numbers as
// JSON, by the name of the file.
import { readFileSync } from "node:fs";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

const counted = process.argv.slice(2).map((name) => [name, countTokens(readFileSync(name, "utf8"))]);
console.log(JSON.stringify(Object.fromEntries(counted)));
