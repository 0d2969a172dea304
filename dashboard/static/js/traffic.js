// j and k walk the operators of a list; Enter opens one, as it does with every link.
"use strict";
document.addEventListener("keydown", (event) => {
  if ((event.key !== "j" && event.key !== "k") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  const links = [...document.querySelectorAll("#results .row-link")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = event.key === "j" ? at + 1 : Math.max(at - 1, 0);
  links[Math.min(next, links.length - 1)].focus();
});
