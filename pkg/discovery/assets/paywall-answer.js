// The answer for eyes: a line that says what was found, and its fields as tables. Both
// are made of the JSON of the answer, by what the catalog says of the operation's fields.

const verdicts = JSON.parse(page.verdicts); // rules [condition, sentence, tone] by the field of a bundle; those of the whole have the name ""
const hints = JSON.parse(page.hints); // what a field is shown as, by its path

/** The names of fields that are expected to be there. */
const expected = Object.keys(hints).filter((path) => hints[path] === "expected").map((path) => path.split(".").pop());

/** The value at a path such as ssl.not_after or records.length; null where there is none. At headers.missing it is how many expected ones are not there. */
const at = (value, path) => path.split(".").reduce((inner, name) => (name === "missing" && inner ? expected.filter((n) => inner[n] === null).length : inner?.[name] ?? null), value);

/** Whether the conditions of a rule hold: "a = b and c.length < 3". */
function holds(conditions, answer) {
  return !conditions || conditions.split(" and ").every((condition) => {
    const [path, operator, word] = condition.split(" ");
    const value = String(at(answer, path));
    return { "=": value === word, "!=": value !== word, "<": Number(value) < Number(word), ">=": Number(value) >= Number(word) }[operator];
  });
}

/** Text of strangers within a sentence of ours: in quotes, and nothing else than it claims to be. */
const quoted = (text, otherwise) => (text ? el("q", {}, el("bdi", {}, words(text))) : otherwise);

/** The host of a URL of the web; empty where it is none. */
function hostOf(value, base) {
  try {
    const url = new URL(value, base ?? undefined);
    return /^https?:$/.test(url.protocol) ? url.hostname : "";
  } catch { return ""; }
}

/** The first rule that holds, with its values filled in; nothing where none does. */
function verdict(rules, answer) {
  const rule = rules?.find(([conditions]) => holds(conditions, answer));
  if (!rule) return null;
  const says = rule[1].split(/(\{[^}]+\})/).map((part) => {
    const [, path, how, noun] = part.match(/^\{([^ }]+)(?: ([a-z]+))?(?: ([^}]+))?\}$/) ?? [];
    if (!path) return part;
    const value = at(answer, path);
    if (how === "host") return quoted(hostOf(value, noun && at(answer, noun)), "an address without a host");
    if (how === "name") return quoted(/^[\w.-]+$/.exec(value)?.[0], "a name of other characters");
    if (how === "date") return dateOf(value);
    if (how === "distance") return distance(value);
    if (how === "list") return value.join(", ");
    if (how === "count") return count(value.length, noun);
    return words(value, 300);
  });
  return { says: el("span", {}, ...says), tone: rule[2] };
}

const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const dateOf = (text) => new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });

/** How far a date is from today's, both in UTC, in days, or years from two years on. */
function distance(text) {
  const day = (ms) => Math.floor(ms / 86_400_000), ahead = day(Date.parse(text)) - day(Date.now()), days = Math.abs(ahead);
  const said = days < 730 ? count(days, "day") : count(Math.floor(days / 365), "year");
  return ahead === 0 ? "today" : ahead < 0 ? said + " ago" : "in " + said;
}

const short = ["ip", "url", "sni", "tls", "ttl", "rcode", "dns", "ssl", "sha256", "dnssec", "iana", "id", "rdap"];

/** A field's name for people. The names of headers stay as they are. */
function label(name, header = false) {
  if (header) return el("code", {}, name);
  const text = name.split("_").map((word) => (word === "sans" ? "SANs" : short.includes(word) ? word.toUpperCase() : word)).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => Array.isArray(value) && value.some(isObject);

/** A value as a cell shows it. */
function shown(value, path) {
  if (value === null) return hints[path] === "expected" ? el("strong", { class: "missing" }, "missing") : el("span", { class: "soft" }, "none");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (hints[path] === "time" && !Number.isNaN(Date.parse(value))) {
    return el("span", {}, dateOf(value), ", ", words(value).slice(11, 16), " UTC ", el("span", { class: "soft" }, distance(value)));
  }
  if (isObject(value)) return el("span", {}, Object.values(value).filter((v) => v !== "").map((v) => words(v)).join(", "));
  if (Array.isArray(value)) {
    if (value.length === 0) return el("span", { class: "soft" }, "none");
    const more = value.length > 50 ? [el("li", { class: "soft" }, `and ${value.length - 50} more, in the JSON`)] : [];
    return el("ul", { class: "plain" }, ...value.slice(0, 50).map((v) => el("li", {}, el("bdi", {}, words(v, 500)))), ...more);
  }
  return el("bdi", {}, words(value, 2000));
}

const scrolling = (caption, table) => el("section", { class: "scroll", tabindex: "0", "aria-label": caption }, table);
const heads = (names) => el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name))));

/** A list of objects, a row for each. */
function listTable(name, list) {
  const names = Object.keys(list[0]), most = 200;
  const body = el("tbody", {}, ...list.slice(0, most).map((item) => el("tr", {}, ...names.map((n) => el("td", { "data-label": label(n), class: words(item[n]).length < 18 ? "nowrap" : "" }, shown(item[n], name + "." + n))))));
  const rest = list.length > most ? ` (the first ${most} of ${list.length}; all are in the JSON)` : "";
  return scrolling(label(name), el("table", {}, el("caption", {}, label(name) + rest), heads(names.map((n) => label(n))), body));
}

/** The fields of an object, a row for each. */
function fieldTable(caption, fields, path) {
  return scrolling(caption, el("table", { class: "fields" }, el("tbody", {}, ...fields.map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row" }, label(name, path.endsWith("headers."))), el("td", {}, shown(value, path + name)))))));
}

/**
 * The parts of an answer, or of a part of a bundle: lists first, then what has
 * fields, then the rest, which in a bundle is about all of it and stands before.
 */
function tables(answer, title, path = "") {
  const fields = Object.entries(answer), plain = fields.filter(([name, value]) => !isTable(value) && !isSection(path + name, value));
  const rest = plain.length > 0 ? [fieldTable(title, plain, path)] : [];
  const sections = fields.filter(([name, value]) => isSection(path + name, value)).flatMap(([name, value]) => section(name, value, path));
  return [
    ...fields.filter(([, value]) => isTable(value)).map(([name, list]) => listTable(name, list)),
    ...("dns" in verdicts ? [...rest, ...sections] : [...sections, ...rest]),
  ];
}

/** Whether a field has its own place: the headers, or a part of a bundle. */
const isSection = (path, value) => isObject(value) && (path.endsWith("headers") || path in verdicts);

function section(name, value, path) {
  if (!(path + name in verdicts)) return [fieldTable(label(name), Object.entries(value), path + name + ".")];
  const line = value.error
    ? { says: `${words(value.error.code)}: ${words(value.error.message)}`, tone: "warn" } : verdict(verdicts[name], value);
  return [
    el("h3", {}, label(name)), ...(line ? [el("p", { class: "verdict " + line.tone }, line.says)] : []),
    ...(value.error ? [] : tables(value, label(name), path + name + ".")),
  ];
}
