// Light or dark, before the first paint: as the system has it, unless the viewer chose otherwise here.
// No module: those run later, and the page would flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* a browser without storage */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
