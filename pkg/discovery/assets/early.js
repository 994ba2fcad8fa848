// There are scripts: said before anything is painted, so that what they hide or show has
// its place from the beginning.
document.documentElement.classList.add("js");
