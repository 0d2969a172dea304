// Theme toggle, copy buttons, menus. Everything here makes pages nicer; nothing needs it.
"use strict";

const root = document.documentElement;

function showTheme(theme) {
  for (const button of document.querySelectorAll("[data-set-theme]")) {
    button.setAttribute("aria-pressed", String(button.dataset.setTheme === theme));
  }
}

function setTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("opatlas-theme");
    else localStorage.setItem("opatlas-theme", theme);
  } catch {
    // Not remembered where storage is forbidden.
  }
  showTheme(theme);
  document.dispatchEvent(new CustomEvent("opatlas:theme"));
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const text = source ? source.textContent : button.dataset.copyText;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return; // No permission: the text is on the page to be selected.
  }
  const label = button.querySelector(".label");
  const before = label ? label.textContent : "";
  button.classList.add("done");
  if (label) label.textContent = "Copied";
  setTimeout(() => {
    button.classList.remove("done");
    if (label) label.textContent = before;
  }, 1500);
}

// Ctrl-K: one search over everything. Arrows go through what is found, Enter opens it.
const finder = document.getElementById("find");

function openFind() {
  if (!finder || finder.open) return;
  finder.showModal();
  const input = finder.querySelector("input");
  input.select();
  htmx.trigger(input, "find");
}

finder?.addEventListener("keydown", (event) => {
  const links = [...finder.querySelectorAll("#found a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = at + (event.key === "ArrowDown" ? 1 : -1);
    (links[next] ?? finder.querySelector("input")).focus();
  } else if (event.key === "Enter" && at < 0 && links.length) {
    event.preventDefault();
    links[0].click();
  }
});
finder?.addEventListener("click", (event) => {
  if (event.target === finder) finder.close(); // beside the box
});

// On a telephone the navigation is one line: the page that is open must be seen in it.
document.querySelector(".nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-find]") && finder && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openFind();
  }
  const theme = event.target.closest("[data-set-theme]");
  if (theme) setTheme(theme.dataset.setTheme);
  const copier = event.target.closest("[data-copy], [data-copy-text]");
  if (copier) copy(copier);
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    openFind();
  }
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
  // "/" goes to the page's search field, as people know it from elsewhere.
  const typing = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector("main input[type=search]");
    event.preventDefault();
    if (search) {
      search.focus();
      search.select();
    } else {
      openFind();
    }
  }
});

// Nobody looks: nothing needs to be asked for.
document.addEventListener("htmx:beforeRequest", (event) => {
  const polls = event.detail.elt.getAttribute("hx-trigger")?.startsWith("every ");
  if (polls && document.hidden) event.preventDefault();
});

// The session ended meanwhile: go to the login page, instead of putting it into a corner of this one.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (new URL(event.detail.xhr.responseURL).pathname === "/login/") {
    event.preventDefault();
    window.location.reload();
  }
});

// A form that takes a while says so, and is not sent twice.
document.addEventListener("submit", (event) => {
  const button = event.target.querySelector("[data-busy]");
  if (!button) return;
  setTimeout(() => {
    button.disabled = true;
    button.textContent = button.dataset.busy;
  });
});
window.addEventListener("pageshow", (event) => {
  // Back from the browser's cache: the button must work again.
  if (event.persisted) window.location.reload();
});

showTheme(root.dataset.theme || "auto");
