// Draws every <figure data-chart="id"> from the JSON in #id. Colours in it are names of CSS custom properties
// ("$library"), so that charts follow the theme; they are drawn again when it changes.
"use strict";
(() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  function colour(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  function resolved(value, cache) {
    if (typeof value === "string" && value.startsWith("$")) {
      return (cache[value] ??= colour(value.slice(1)));
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, cache));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, cache)]));
    }
    return value;
  }

  const drawn = new WeakMap(); // figure → the JSON it shows

  function draw(figure, again) {
    const source = document.getElementById(figure.dataset.chart);
    if (!source || typeof Plotly === "undefined") return;
    if (!again && drawn.get(figure) === source.textContent) return;
    drawn.set(figure, source.textContent);
    const chart = resolved(JSON.parse(source.textContent), {});
    const short = chart.layout.meta?.short;
    if (short && figure.clientWidth < 520) chart.layout.yaxis.ticktext = short;
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
    if (chart.layout.height) figure.style.setProperty("--chart-height", `${chart.layout.height}px`);
    Plotly.react(figure, chart.data, chart.layout, config).then(() => figure.classList.remove("waiting"));
  }

  function drawAll(scope, again = false) {
    for (const figure of scope.querySelectorAll("[data-chart]")) draw(figure, again);
  }

  drawAll(document);
  document.addEventListener("opatlas:theme", () => drawAll(document, true));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document, true));
  document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt));
})();
