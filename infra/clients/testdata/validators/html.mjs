// Validates the pages named on the command line, and prints, as JSON, what is
// wrong with each. The library is used, not the command line, whose search for
// files needs a newer Node than this suite does.
import { readFile } from "node:fs/promises";
import { HtmlValidate } from "html-validate";

const validate = new HtmlValidate({
  root: true,
  extends: ["html-validate:recommended", "html-validate:document", "html-validate:a11y"],
  // JSON in an attribute is a third shorter in single quotes, which HTML allows.
  rules: { "attr-quotes": ["error", { style: "any" }] },
});
const pages = {};
for (const name of process.argv.slice(2)) {
  const report = await validate.validateString(await readFile(name, "utf8"), name);
  pages[name] = report.results.flatMap((r) => r.messages).map((m) => `${m.line}:${m.column} ${m.ruleId}: ${m.message}`);
}
console.log(JSON.stringify(pages));
