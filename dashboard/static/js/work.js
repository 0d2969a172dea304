// Lists with boxes to tick, and live parts that wait while somebody is busy in them.
"use strict";

// A live part that was replaced now would lose what is ticked, opened or being typed there.
function busyIn(part) {
  return Boolean(
    part.querySelector("input[type=checkbox]:checked, details.ask[open]") ||
      document.querySelector(".bulk details[open]") ||
      part.querySelector("input:focus, select:focus, textarea:focus"),
  );
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  const polls = part.getAttribute("hx-trigger")?.startsWith("every ");
  if (polls && busyIn(part)) event.preventDefault();
});

function ticked(form) {
  return [...document.querySelectorAll(`input[name=id][form="${form.id}"]`)];
}

function show(form) {
  const boxes = ticked(form);
  const chosen = boxes.filter((box) => box.checked).length;
  const count = form.querySelector("[data-chosen]");
  if (count) count.textContent = chosen ? `${chosen} chosen` : "Choose rows, then what to do:";
  const all = document.querySelector(`[data-all="${form.id}"]`);
  if (all) {
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
}

document.addEventListener("change", (event) => {
  const all = event.target.closest("[data-all]");
  const name = all ? all.dataset.all : event.target.getAttribute("form");
  const form = name && document.getElementById(name);
  if (!form || !form.classList.contains("bulk")) return;
  if (all) for (const box of ticked(form)) box.checked = all.checked;
  show(form);
});
