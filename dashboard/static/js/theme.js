// Runs before the first paint, so that a remembered theme does not flash. "auto" leaves it to the system.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  let theme = null;
  try {
    theme = localStorage.getItem("opatlas-theme");
  } catch {
    // Storage can be forbidden; the system's theme it is then.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
