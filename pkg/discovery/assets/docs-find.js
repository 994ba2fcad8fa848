// The search of the documentation: what the page says, block by block, and which blocks match
// the words of a visitor.

/** Words of visitors, and how the page says the same. */
const synonyms = {
  double: ["twice", "once"], duplicate: ["twice", "once"], timeout: ["time out"], testnet: ["test network", "play money"],
  javascript: ["typescript"], golang: ["go"], cost: ["price"], tls: ["ssl"],
};

/** A text as the search sees it: small letters, and a blank where words are joined. It is as long as before. */
const plain = (text) => text.toLowerCase().replace(/[-_]/g, " ");

/** What a block says, on one line: a row with its cells apart, and a definition with its name. */
function textOf(block) {
  const parts = { TR: () => [...block.cells], DD: () => [block.previousElementSibling, block] }[block.tagName]?.() ?? [block];
  return parts.map((part) => part.textContent.replace(/\s+/g, " ").trim()).join(" · ");
}

/** The name of a place, as a person reads it. */
function nameOf(node) {
  if (node.matches("tr")) return node.querySelector("th").textContent;
  if (node.matches(".panel")) return node.querySelector("h3").textContent;
  if (node.matches(".more")) return node.closest("details").querySelector("summary").textContent;
  return node.firstChild.textContent;
}

/** Every block of the page, with the place that it belongs to: its address, its name, and where it is. */
function blocksOf(page, contents) {
  const groups = {};
  for (const link of contents.querySelectorAll("a")) groups[link.hash] = link.closest(".menu > ul")?.previousElementSibling.textContent;
  const placeOf = (node, where) => ({ node, id: node.id, name: nameOf(node), plainName: plain(nameOf(node)), where, plainWhere: plain(where) });
  let section = "", place = { node: page, id: page.id, name: page.querySelector("h1").textContent, plainName: "", where: "", plainWhere: "" };
  const blocks = [];
  for (const node of page.querySelectorAll("h2, h3, .panel, .more[id], p, li, dd, tbody tr, pre, summary")) {
    const row = node.matches("tr[id]");
    const group = groups["#" + node.id] ?? "";
    let own = place;
    if (row || node.matches("[id]:not(pre)")) own = placeOf(node, node.matches("h2") ? group : section);
    if (node.matches("h2")) section = [group, own.name].filter(Boolean).join(" › ");
    if (!row) place = own;
    const text = textOf(node);
    if (!node.matches(".panel, .more")) blocks.push({ node, place: own, text, plain: plain(text), bonus: bonusOf(node) });
  }
  return blocks;
}

/** A heading says what the place is about; a program says little, and the name of a fold less than what is in it. */
function bonusOf(node) {
  return { H2: 3, H3: 2, PRE: -1, SUMMARY: -2 }[node.tagName] ?? (node.textContent.length > 600 ? -0.5 : 0);
}

/** A word as patterns, the best first: the word, a word that begins with it or nearly, and a part of a word. */
function patternsOf(word) {
  return [word, ...(synonyms[word] ?? [])].flatMap((said, i) => {
    const text = plain(said).replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    const begin = "(?<![\\p{L}\\p{N}])", end = "s?(?![\\p{L}\\p{N}])";
    const list = [[begin + text + end, 4], [begin + text, 3]];
    if (said.length > 5) list.push([begin + text.slice(0, Math.max(5, text.length - 2)), 2]);
    if (said.length > 3) list.push([text, 1]);
    return list.map(([pattern, weight]) => ({ pattern: new RegExp(pattern, "gu"), weight: i ? weight - 0.5 : weight }));
  }).sort((a, b) => b.weight - a.weight);
}

const strengthOf = (text, patterns) => patterns.find(({ pattern }) => text.search(pattern) >= 0)?.weight ?? 0;

/** How well a block matches all words, 0 for not at all. Where a word is missing, the names of its place can have it. */
function scoreOf({ plain: text, place, bonus }, words, phrase) {
  let total = 0, here = 0;
  for (const patterns of words) {
    const inText = strengthOf(text, patterns), inName = strengthOf(place.plainName, patterns);
    const around = inName || strengthOf(place.plainWhere, patterns) > 0;
    if (!inText && !around) return 0;
    here += inText;
    total += (inText || 1) + inName;
  }
  if (!here) return 0;
  return total + bonus + (words.length > 1 && text.includes(phrase) ? 3 : 0);
}

/** The places that match, the best first: each with the block to go to, and the block to quote. */
function hitsOf(blocks, query) {
  const said = plain(query).split(/\s+/).filter(Boolean), words = said.map(patternsOf);
  const places = new Map();
  for (const block of said.length > 0 ? blocks : []) {
    const score = scoreOf(block, words, said.join(" "));
    const known = places.get(block.place) ?? { place: block.place, score: 0, quoted: 0 };
    const heading = block.node.matches("h2, h3");
    if (score > known.score) Object.assign(known, { score, block });
    if (!heading && (!known.quote || score > known.quoted)) Object.assign(known, { quoted: score, quote: block });
    places.set(block.place, known);
  }
  const hits = [...places.values()].filter(({ score }) => score > 0).sort((a, b) => b.score - a.score).slice(0, 12);
  return hits.map(({ place, block, quote }) => ({
    place, block, words, name: quotation(place.name, words), quote: quotation((quote ?? block).text, words),
  }));
}

/** Where words are in a text: [from, to] in order, none within another. */
function marksOf(text, words) {
  const found = words.flatMap((patterns) => {
    const best = patterns.find(({ pattern }) => text.search(pattern) >= 0);
    return best ? [...text.matchAll(best.pattern)].map((m) => [m.index, m.index + m[0].length]) : [];
  }).sort((a, b) => a[0] - b[0]);
  return found.filter(([from], i) => i === 0 || from >= found[i - 1][1]);
}

/** A bit of a text around its first mark, as [text, whether it is marked] pieces. */
function quotation(text, words) {
  const before = 40, most = 150;
  const marks = marksOf(plain(text), words);
  const [first, last] = marks[0] ?? [0, 0];
  let from = Math.max(0, first - before), to = Math.min(text.length, from + most);
  const gaps = [text.indexOf(" ", from) + 1, text.lastIndexOf(" ", to)]; // words stay whole where they are short
  if (from > 0 && gaps[0] > from && gaps[0] <= first) from = gaps[0];
  if (to < text.length && gaps[1] >= last) to = gaps[1];
  const pieces = [[from > 0 ? "… " : "", false]];
  let at = from;
  for (const [begin, end] of marks.filter(([begin, end]) => begin >= from && end <= to)) {
    pieces.push([text.slice(at, begin), false], [text.slice(begin, end), true]);
    at = end;
  }
  pieces.push([text.slice(at, to) + (to < text.length ? " …" : ""), false]);
  return pieces.filter(([piece]) => piece);
}

/** The words within a block, as ranges of the page that can be coloured. */
function rangesOf(block, words) {
  const ranges = [];
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (const [from, to] of marksOf(plain(node.data), words)) {
      const range = new Range();
      range.setStart(node, from);
      range.setEnd(node, to);
      ranges.push(range);
    }
  }
  return ranges;
}
