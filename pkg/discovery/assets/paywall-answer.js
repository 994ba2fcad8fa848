// The answer for eyes: a line that says what was found, and its fields as tables. Both
// are made of the JSON of the answer, by what the catalog says of the operation's fields.

const verdicts = JSON.parse(page.verdicts); // rules, a line for each, by the field of a bundle; those of the whole have the name ""
const hints = JSON.parse(page.hints); // what a field is shown as, by its name

/** The names of fields that are expected to be there. */
const expected = Object.keys(hints).filter((name) => hints[name] === "expected");

/** The value at a path such as ssl.not_after, records.length or hops.last; null where there is none. At headers.missing it is how many expected ones are not there. */
const at = (value, path) => path.split(".").reduce((inner, name) => {
  if (name === "missing" && inner) return expected.filter((n) => inner[n] === null).length;
  return inner?.[name === "last" ? inner.length - 1 : name] ?? null;
}, value);

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
  const rule = rules?.split("\n").map((line) => line.split("|")).find(([conditions]) => holds(conditions, answer));
  if (!rule) return null;
  const says = rule[1].split(/(\{[^}]+\})/).map((part) => {
    const [, path, how, noun] = part.match(/^\{([^ }]+)(?: ([a-z]+))?(?: ([^}]+))?\}$/) ?? [];
    if (!path) return part;
    const value = at(answer, path);
    if (how === "host") return quoted(hostOf(value, noun && at(answer, noun)), "an address without a host");
    if (how === "name") return quoted(/^[\w.-]+$/.exec(value)?.[0], "a name of other characters");
    if (how === "date") return whole(dateOf(value));
    if (how === "distance") return whole(distance(value));
    if (how === "list") return value.join(", ");
    if (how === "count") return count(value.length, noun);
    return sentence(words(value, 300));
  });
  return { says: el("span", {}, ...says), tone: rule[2] };
}

const whole = (text) => el("span", { class: "nowrap" }, text);
const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const dateOf = (text) => new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });

let answeredAt = 0; // ms, when the answer on show was given: its dates are as far away as they were then

/** How far a date is from that of the answer, both in UTC, in days, or years from two years on. */
function distance(text) {
  const day = (ms) => Math.floor(ms / 86_400_000), ahead = day(Date.parse(text)) - day(answeredAt), days = Math.abs(ahead);
  const said = days < 730 ? count(days, "day") : count(Math.floor(days / 365), "year");
  return ahead === 0 ? "today" : ahead < 0 ? said + " ago" : "in " + said;
}

const short = ["ip", "url", "sni", "tls", "ttl", "rcode", "dns", "ssl", "dnssec", "iana", "id", "rdap", "whois"];
const spelt = { sans: "names (SANs)", sha256: "(SHA-256)" };

/** A field's name for people. The names of headers stay as they are. */
function label(name, header = false) {
  if (header) return el("code", {}, name);
  const text = name.split("_").map((word) => spelt[word] ?? (short.includes(word) ? word.toUpperCase() : word)).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => Array.isArray(value) && value.some(isObject);

const marked = (text, kind) => el("strong", { class: kind }, text);

/** A date and time as people write them, in UTC. */
const timeOf = (text) => `${dateOf(text)}, ${new Date(text).toISOString().slice(11, 16)} UTC`;

/** A value as a cell shows it, which how says. */
function shown(value, how) {
  if (value === null) return how === "expected" ? marked("missing", "missing") : soft("none");
  if (typeof value === "boolean") return how === (value ? "wrong" : "right") ? marked(value ? "yes" : "no", "wrong") : value ? "yes" : "no";
  if (how === "seconds") return value + " s";
  if ((how === "time" || how === "end") && !Number.isNaN(Date.parse(value))) {
    const away = distance(value);
    return el("span", {}, timeOf(value) + " ", how === "end" && Date.parse(value) < answeredAt ? marked(away, "wrong") : soft(away));
  }
  if (isObject(value)) return entries(value);
  if (Array.isArray(value)) return names(value);
  return long(words(value, 2000));
}

/** A small object: its name, and what else there is with labels. */
const entries = (value) => el("ul", { class: "plain" }, ...Object.entries(value).filter(([, v]) => v !== "" && v !== null)
  .map(([name, v]) => el("li", {}, ...(name === "name" ? [] : [soft(label(name) + " ")]), el("bdi", {}, words(v)))));

/** A list of names, one on each line. */
function names(list) {
  if (list.length === 0) return soft("none");
  const most = 500, node = el("ul", { class: "plain" }, ...list.slice(0, most).map((v) => el("li", {}, el("bdi", {}, words(v, 500)))));
  if (list.length > most) node.append(el("li", {}, soft(`and ${list.length - most} more, in the JSON`)));
  return list.length > 8 ? el("div", {}, ...cut(node, "Show all " + list.length)) : node;
}

/** A text, which takes four lines at most at first. */
const long = (text) => (text.length > 100 ? el("div", {}, ...cut(el("p", {}, el("bdi", {}, text)))) : el("bdi", {}, text));

const scrolling = (caption, table) => el("section", { class: "scroll", tabindex: "0", "aria-label": caption }, table);
const heads = (names) => el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name))));

/** A list of objects, a row for each. */
function listTable(name, list) {
  const columns = Object.keys(list[0]), most = 200;
  const body = el("tbody", {}, ...list.slice(0, most).map((item) => el("tr", {}, ...columns.map((n) => el("td", { ...(columns[1] && { "data-label": label(n) }), class: words(item[n]).length < 18 ? "nowrap" : "" }, shown(item[n], hints[n]))))));
  const rest = list.length > most ? ` (the first ${most} of ${list.length}; all are in the JSON)` : "";
  const [, more] = list.length > 8 ? cut(body, "Show all " + Math.min(list.length, most)) : [];
  return el("div", {}, scrolling(label(name), el("table", {}, el("caption", {}, label(name) + rest), heads(columns.map((n) => label(n))), body)), more ?? "");
}

/** The addresses that a chain of redirects leads over, one below the other; where one leads is said where the next one is spelt otherwise. */
const hopList = (name, list) => el("section", { class: "scroll", "aria-label": label(name) }, el("h3", { class: "caption" }, label(name)), el("ol", { class: "hops" }, ...list.map((hop, i) =>
  el("li", {}, el("b", {}, words(hop.status)), long(words(hop.url, 2000)),
    ...(hop.location && hop.location !== list[i + 1]?.url ? [el("div", {}, soft("Leads to "), long(words(hop.location, 2000)))] : []),
    soft(`${words(hop.method)}, answered by ${words(hop.peer_ip)}`)))));

/** The fields of an object, a row for each. */
function fieldTable(caption, fields, header = false) {
  return scrolling(caption, el("table", { class: "fields" }, el("tbody", {}, ...fields.map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row" }, label(name, header)), el("td", {}, shown(value, hints[name])))))));
}

/**
 * The parts of an answer, or of a part of a bundle: lists first, then what has
 * fields, then the rest, which in a bundle is about all of it and stands before.
 */
function tables(answer, title) {
  const fields = Object.entries(answer), plain = fields.filter(([name, value]) => !isTable(value) && !isSection(name, value));
  const rest = plain.length > 0 ? [fieldTable(title, plain)] : [];
  const sections = fields.filter(([name, value]) => isSection(name, value)).flatMap(([name, value]) => section(name, value));
  return [
    ...fields.filter(([, value]) => isTable(value)).map(([name, list]) => (hints[name] === "hops" ? hopList : listTable)(name, list)),
    ...("dns" in verdicts ? [...rest, ...sections] : [...sections, ...rest]),
  ];
}

/** Whether a field has its own place: the headers, or a part of a bundle. */
const isSection = (name, value) => isObject(value) && (name === "headers" || name in verdicts);

/** The headers of an answer, or a part of a bundle, which has a domain or an error. */
function section(name, value) {
  if (!("domain" in value || value.error)) return [fieldTable(label(name), Object.entries(value), true)];
  const line = value.error ? { says: words(value.error.message), tone: "warn" } : verdict(verdicts[name], value);
  return [
    el("h3", {}, label(name)), ...(line ? [el("p", { class: "verdict " + line.tone }, el("span", {}, line.says, ...footnote(value.error && words(value.error.code))))] : []),
    ...(value.error ? [] : tables(value, label(name))),
  ];
}
