// Behind the tabs, and at the end: shows the panel that the address names, and opens the fold,
// before what comes after them is painted and would have to move.
(() => {
  const place = document.getElementById(location.hash.slice(1));
  const [panel, fold] = [place?.closest(".panel"), place?.closest("details")];
  if (panel) for (const other of document.querySelectorAll(".panel")) other.classList.toggle("chosen", other === panel);
  if (fold) fold.open = true;
})();
