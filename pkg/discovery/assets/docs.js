(() => {
  document.documentElement.classList.add("js");
  const menu = document.querySelector(".menu");
  const narrow = matchMedia("(max-width: 61.99rem)");
  const fold = () => { menu.open = !narrow.matches; };
  fold();
  narrow.addEventListener("change", fold);
  menu.addEventListener("click", (event) => {
    if (narrow.matches && event.target.closest("a")) menu.open = false;
  });
  if (!navigator.clipboard) return;
  const status = document.getElementById("copied");
  for (const bar of document.querySelectorAll(".code > .bar")) {
    const name = bar.firstElementChild.textContent;
    const button = document.createElement("button");
    const face = document.createElement("span");
    const hidden = document.createElement("span");
    let reset;
    button.type = "button";
    button.className = "copy";
    face.textContent = "Copy";
    hidden.className = "unseen";
    hidden.textContent = " " + name;
    button.append(face, hidden);
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
})();
