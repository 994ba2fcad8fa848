(() => {
  const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const heldTop = () => parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;

  const status = document.getElementById("copied"); // is read aloud

  // The contents, folded where they have no column.
  const menu = document.querySelector(".menu");
  const narrow = matchMedia("(max-width: 61.99rem)");
  const fold = () => { menu.open = !narrow.matches; };
  fold();
  narrow.addEventListener("change", fold);
  menu.addEventListener("click", (event) => {
    if (narrow.matches && event.target.closest("a")) menu.open = false;
  });

  // Folds of narrow screens, in a browser whose style sheet cannot open them elsewhere.
  if (!CSS.supports("selector(::details-content)") && matchMedia("(min-width: 48rem)").matches) {
    for (const folded of document.querySelectorAll(".narrow")) folded.open = true;
  }

  // A tab for each language. Without this script the panels follow each other.
  const panels = [...document.querySelectorAll(".panel")];
  const buttons = [...document.querySelectorAll(".tablist button")];
  const select = (panel) => {
    panels.forEach((other, i) => {
      other.classList.toggle("chosen", other === panel);
      buttons[i].ariaSelected = String(other === panel);
      buttons[i].tabIndex = other === panel ? 0 : -1;
    });
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => select(panels[i])));
  document.querySelector(".tablist").addEventListener("keydown", (event) => {
    const from = buttons.indexOf(event.target), last = buttons.length - 1;
    const to = { ArrowRight: from === last ? 0 : from + 1, ArrowLeft: from === 0 ? last : from - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(panels[to]);
    buttons[to].focus();
  });

  // Opens what hides a node: a panel and folds. It says whether something did.
  const reveal = (node) => {
    const panel = node.closest(".panel");
    if (panel) select(panel);
    let hidden = panel !== null;
    for (let fold = node.closest("details.raw"); fold; fold = fold.parentElement.closest("details.raw")) {
      fold.open = true;
      hidden = true;
    }
    return hidden;
  };

  // A link into a panel or a fold opens it, before the browser looks for it.
  const open = (hash) => {
    const target = document.getElementById(hash.slice(1));
    return target && reveal(target) ? target : null;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) open(link.hash);
  });
  const arrive = () => open(location.hash)?.scrollIntoView();
  addEventListener("hashchange", arrive);
  arrive();

  // Each heading links to itself, and each block of code can be copied.
  for (const heading of document.querySelectorAll(":is(h2, h3)[id]")) {
    heading.append(create("a", { className: "anchor", href: "#" + heading.id, textContent: "#", ariaLabel: "Link to " + heading.textContent }));
  }
  for (const bar of navigator.clipboard ? document.querySelectorAll(".code > .bar") : []) {
    const name = bar.firstElementChild.textContent;
    const face = create("span", { textContent: "Copy" });
    const button = create("button", { type: "button", className: "copy" });
    let reset;
    button.append(face, create("span", { className: "unseen", textContent: " " + name }));
    button.addEventListener("click", async () => {
      let said = "Copied";
      try {
        await navigator.clipboard.writeText(bar.parentElement.querySelector("pre").textContent);
      } catch {
        said = "Not copied";
      }
      face.textContent = said;
      status.textContent = said + ": " + name;
      clearTimeout(reset);
      reset = setTimeout(() => {
        face.textContent = "Copy";
        status.textContent = "";
      }, 2500);
    });
    bar.append(button);
  }

  // The search. "/" goes to it, the arrows go through what is found, Enter opens, Escape clears.
  const find = document.getElementById("find"), found = document.getElementById("found");
  const page = document.querySelector("main");
  let blocks = null;
  const clear = () => {
    find.value = "";
    list();
  };
  const go = ({ place, block, words }) => {
    const hidden = () => block.node.getClientRects().length === 0;
    reveal(block.node);
    const goal = hidden() ? place.node : block.node;
    const ranges = rangesOf(goal, words);
    const seen = ranges[0]?.startContainer.parentElement ?? goal;
    history.pushState(null, "", "#" + place.id);
    CSS.highlights?.set("found", new Highlight(...ranges));
    if (goal.tabIndex < 0) goal.tabIndex = -1; // so that it can have the focus
    goal.focus({ preventScroll: true });
    seen.scrollIntoView({ block: "center" });
  };
  const entry = (hit) => {
    const filled = (tag, className, pieces) => {
      const node = create(tag, { className });
      node.append(...pieces.map(([text, marked]) => (marked ? create("mark", { textContent: text }) : text)));
      return node;
    };
    const { place, name, quote } = hit;
    const link = create("a", { href: "#" + place.id });
    link.append(filled("b", "name", name), filled("span", "where", [[place.where, false]]), filled("span", "bit", quote));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      clear();
      if (narrow.matches) menu.open = false;
      go(hit);
    });
    const item = create("li", {});
    item.append(link);
    return item;
  };
  const list = () => {
    blocks ??= blocksOf(page, menu);
    const asked = find.value.trim() !== "";
    const hits = hitsOf(blocks, find.value);
    found.replaceChildren(...hits.map(entry));
    if (hits.length === 0) found.append(create("li", { className: "soft", textContent: "Nothing found." }));
    found.hidden = !asked;
    status.textContent = asked ? `${hits.length || "No"} place${hits.length === 1 ? "" : "s"} found` : "";
  };
  find.addEventListener("input", list);
  find.parentElement.parentElement.addEventListener("keydown", (event) => {
    const links = [...found.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && links.length > 0) {
      event.preventDefault();
      (links[Math.min(at + step, links.length - 1)] ?? find).focus();
    } else if (event.key === "Enter" && at < 0) {
      links[0]?.click();
    } else if (event.key === "Escape") {
      clear();
      find.focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    menu.open = true;
    find.focus();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".find-box")) found.hidden = true;
  });
  find.addEventListener("focus", () => { if (find.value) found.hidden = false; });

  // The entry of the contents that is read now. It asks where things are, and comes after
  // what changes the page, so that all of it is laid out once.
  const side = document.querySelector(".side");
  const entries = [...menu.querySelectorAll("a")].map((link) => ({ link, target: document.getElementById(link.hash.slice(1)) }));
  let current = null;
  const mark = () => {
    const line = heldTop() + 48, bottom = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    let now = entries[0];
    for (const entry of entries) {
      if (entry.target.getClientRects().length === 0 || entry.link.getClientRects().length === 0 && !narrow.matches) continue;
      const { top } = entry.target.getBoundingClientRect();
      if (top <= line || bottom && top < innerHeight && entry.link.hash === location.hash) now = entry;
    }
    if (now.link === current) return;
    current?.removeAttribute("aria-current");
    current = now.link;
    current.setAttribute("aria-current", "location");
    const [inner, outer] = [current.getBoundingClientRect(), side.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) side.scrollTop += inner.top - outer.top - outer.height / 3;
  };
  let due = false;
  const later = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; mark(); });
  };
  addEventListener("scroll", later, { passive: true });
  addEventListener("resize", later);
  later();
})();
