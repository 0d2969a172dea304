// Draws every <figure data-chart="id"> from the JSON in #id. Colours in it are names of CSS custom properties
// ("$library"), so that charts follow the theme; they are drawn again when it changes. Plotly is fetched once
// there is a chart. Charts over hours show the reader's own time, and UTC where one points; where the page has a
// choice of time, dragging over a chart of time chooses it.
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

  const address = document.currentScript.dataset.plotly;
  let asked = null; // Plotly, once it is needed

  function plotly() {
    asked ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = () => resolve(window.Plotly);
      script.onerror = reject;
      document.head.append(script);
    });
    return asked;
  }

  const two = (number) => String(number).padStart(2, "0");

  function local(moment) {
    const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
    return `${day}T${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  }

  // Whether a chart is over hours: days are days of UTC, whoever looks.
  function isHourly(chart) {
    return chart.data.some((trace) => trace.x?.some((at) => typeof at === "string" && !/T00:00:00/.test(at)));
  }

  function inLocalTime(chart) {
    for (const trace of chart.data) {
      const moments = trace.x?.map((at) => new Date(at));
      if (!moments) continue;
      trace.x = moments.map(local);
      if (Array.isArray(trace.text)) {
        const said = moments.map((at) => at.toISOString().slice(0, 16).replace("T", " "));
        trace.text = trace.text.map((text, number) => `${text}<br>${said[number]} UTC`);
      }
    }
    for (const shape of chart.layout.shapes ?? []) {
      if (shape.yref === "paper") shape.x0 = shape.x1 = local(new Date(shape.x0));
    }
    for (const mark of chart.layout.annotations ?? []) mark.x = local(new Date(mark.x));
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    chart.layout.xaxis.title = { text: `time in ${zone.replaceAll("_", " ")}`, font: chart.layout.font, standoff: 6 };
  }

  // Dragging chooses a time, which the address holds. Not by finger: that scrolls the page.
  const chooses =
    document.querySelector('nav[aria-label="Time range"]') && window.matchMedia("(pointer: fine)").matches;

  function goTo(range, hourly) {
    const utc = (text) => new Date(hourly ? text.replace(" ", "T") : `${text.replace(" ", "T")}Z`);
    const [since, until] = range.map((text) => utc(text.length === 10 ? `${text}T00:00:00` : text));
    if (!(until - since >= 60_000)) return;
    const there = new URL(window.location);
    for (const name of ["range", "page"]) there.searchParams.delete(name);
    there.searchParams.set("since", `${since.toISOString().slice(0, 19)}Z`);
    there.searchParams.set("until", `${until.toISOString().slice(0, 19)}Z`);
    window.location.assign(there);
  }

  const drawn = new WeakMap(); // figure → the JSON it shows

  function draw(figure, again) {
    const source = document.getElementById(figure.dataset.chart);
    if (!source) return;
    if (!again && drawn.get(figure) === source.textContent) return;
    drawn.set(figure, source.textContent);
    const chart = resolved(JSON.parse(source.textContent), {});
    const short = chart.layout.meta?.short;
    if (short && figure.clientWidth < 520) chart.layout.yaxis.ticktext = short;
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
    const overTime = chart.layout.xaxis?.type === "date";
    const hourly = overTime && isHourly(chart);
    if (hourly) inLocalTime(chart);
    if (overTime && chooses) {
      chart.layout.xaxis.fixedrange = false;
      chart.layout.dragmode = "zoom";
    }
    plotly()
      .then((library) => library.react(figure, chart.data, chart.layout, config))
      .then(() => {
        figure.classList.remove("waiting");
        if (!overTime || !chooses || figure.dataset.chooses) return;
        figure.dataset.chooses = "yes";
        figure.on("plotly_relayout", (changed) => {
          const range = [changed["xaxis.range[0]"], changed["xaxis.range[1]"]];
          if (range.every((end) => typeof end === "string")) goTo(range, hourly);
        });
      });
  }

  function drawAll(scope, again = false) {
    for (const figure of scope.querySelectorAll("[data-chart]")) draw(figure, again);
  }

  drawAll(document);
  document.addEventListener("opatlas:theme", () => drawAll(document, true));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document, true));
  document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt));
})();
