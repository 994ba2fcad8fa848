// Validates the pages on the command line, and prints, as JSON, what is wrong with each. It
// uses the library. The command line's search for files needs a newer Node than this suite.
import { readFile } from "node:fs/promises";
import { HtmlValidate } from "html-validate";

const validate = new HtmlValidate({
  root: true,
  extends: ["html-validate:recommended", "html-validate:document", "html-validate:a11y"],
  // HTML allows single quotes, and JSON in an attribute is a third shorter with them.
  rules: { "attr-quotes": ["error", { style: "any" }] },
});
const pages = {};
for (const name of process.argv.slice(2)) {
  const report = await validate.validateString(await readFile(name, "utf8"), name);
  pages[name] = report.results.flatMap((r) => r.messages).map((m) => `${m.line}:${m.column} ${m.ruleId}: ${m.message}`);
}
console.log(JSON.stringify(pages));
