(() => {
  const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const heldTop = () => parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;

  // The contents, folded where they have no column.
  const menu = document.querySelector(".menu");
  const narrow = matchMedia("(max-width: 61.99rem)");
  const fold = () => { menu.open = !narrow.matches; };
  fold();
  narrow.addEventListener("change", fold);
  menu.addEventListener("click", (event) => {
    if (narrow.matches && event.target.closest("a")) menu.open = false;
  });

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

  // The search finds headings, error codes and fields by their words.
  const find = document.getElementById("find"), found = document.getElementById("found");
  let places = null;
  const listPlaces = () => [...document.querySelectorAll("main :is(h2, h3, tr)[id]")].map((node) => ({
    id: node.id, name: (node.querySelector("code") ?? node.firstChild).textContent, text: (node.closest("article") ?? node).textContent.toLowerCase(),
  }));
  find.addEventListener("input", () => {
    places ??= listPlaces();
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length === 0 ? [] : places.filter(({ text }) => words.every((word) => text.includes(word)));
    const rank = ({ name }) => (words.some((word) => name.toLowerCase().includes(word)) ? 0 : 1);
    found.replaceChildren(...hits.sort((a, b) => rank(a) - rank(b)).slice(0, 12).map(({ id, name }) => {
      const item = create("li", {});
      item.append(create("a", { href: "#" + id, textContent: name }));
      return item;
    }));
    found.hidden = words.length === 0;
    if (words.length > 0 && hits.length === 0) found.append(create("li", { className: "soft", textContent: "Nothing found." }));
  });
  found.addEventListener("click", () => { find.value = ""; found.hidden = true; });

  // A link into a panel or a fold opens it, before the browser looks for it.
  const open = (hash) => {
    const target = document.getElementById(hash.slice(1));
    const panel = target?.closest(".panel");
    const folded = target?.closest("details.raw");
    if (panel) select(panel);
    if (folded) folded.open = true;
    return panel || folded ? target : null;
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
  const status = document.getElementById("copied");
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
